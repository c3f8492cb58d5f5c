"""Corpus TER, as the `sacrebleu` command computes it. Snover et al. 2006, "A Study of Translation Edit Rate"."""

from typing import final

import sacrebleu

from seq2seq_attn.metric.corpus_metric import CorpusMetric

# The reference length of a sentence is the mean over its references, a fraction. Its unit here is
# 1 / lcm(1, ..., 20) of a word: exact up to 20 references, and correct to nine digits beyond.
UNITS = 232_792_560


@final
class TER(CorpusMetric):
    """Edits per hundred words of the references; more edits than words give over 100. Lower is better.

    Args:
        normalized: split off punctuation, as Tercom's `-N`.
        no_punct: leave punctuation out.
        asian_support: with one of the two above, treat Asian characters as words, as Tercom's `-a`.
        case_sensitive: score with regard to case.
    """

    higher_is_better = False

    def __init__(self, *, normalized: bool, no_punct: bool, asian_support: bool, case_sensitive: bool) -> None:
        scorer = sacrebleu.TER(
            normalized=normalized, no_punct=no_punct, asian_support=asian_support, case_sensitive=case_sensitive
        )
        super().__init__(scorer=scorer, num_counts=2, units=UNITS)  # edits; length of the references
