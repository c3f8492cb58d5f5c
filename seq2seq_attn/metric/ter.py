"""Corpus TER, as the `sacrebleu` command computes it. Snover et al. 2006, "A Study of Translation Edit Rate"."""

import logging
from typing import Literal, final

import sacrebleu

from seq2seq_attn.metric.corpus_metric import CorpusMetric
from seq2seq_attn.metric.language import is_unspaced, language_code

# The reference length of a sentence is the mean over its references, a fraction. Its unit here is
# 1 / lcm(1, ..., 20) of a word: exact up to 20 references, and correct to nine digits beyond.
UNITS = 232_792_560
log = logging.getLogger(__name__)


@final
class TER(CorpusMetric):
    """Edits per hundred words of the references; more edits than words give over 100. Lower is better.

    Args:
        normalized: split off punctuation, as Tercom's `-N`. `auto`: for Chinese and Japanese, which without it and
            `asian_support` have one word a sentence.
        no_punct: leave punctuation out.
        asian_support: with `normalized`, each Chinese character is a word, and with `no_punct`, Asian punctuation is
            left out, as Tercom's `-a`. `auto`: for Chinese and Japanese.
        case_sensitive: score with regard to case.
        language: of the target, as in `fr`.
    """

    higher_is_better = False

    def __init__(
        self,
        *,
        normalized: bool | Literal["auto"],
        no_punct: bool,
        asian_support: bool | Literal["auto"],
        case_sensitive: bool,
        language: str | None = None,
    ) -> None:
        if "auto" in (normalized, asian_support) and is_unspaced(language) and not is_split(language):
            log.warning(
                f"TER counts words between blanks, which {language} lacks, so that a sentence is about one word; chrF "
                "compares characters"
            )
        normalized = is_split(language) if normalized == "auto" else normalized
        asian_support = is_split(language) if asian_support == "auto" else asian_support
        scorer = sacrebleu.TER(
            normalized=normalized, no_punct=no_punct, asian_support=asian_support, case_sensitive=case_sensitive
        )
        super().__init__(scorer=scorer, num_counts=2, units=UNITS)  # edits; length of the references


def is_split(language: str | None) -> bool:
    """Return whether Tercom's `-N -a` finds words in the text of a language: it splits at Chinese characters."""
    return language_code(language) in ("zh", "ja")
