"""Corpus TER, as the `sacrebleu` command computes it. Snover et al. 2006, "A Study of Translation Edit Rate"."""

from collections.abc import Sequence
from typing import final

import sacrebleu
import torch
from torch import Tensor
from torchmetrics import Metric

from seq2seq_attn.metric.corpus import NUM_HEADER, corpus_score, corpus_signature, sentence_counts

# The length of a sentence's references is their mean, a fraction. Its unit here is 1 / lcm(1, ..., 20) of a word:
# exact up to 20 references, and beyond that right to nine digits.
UNITS = 232_792_560


@final
class TER(Metric):
    """Takes detokenized sentences; its state is a few integers, whatever the size of the corpus. Less is better.

    Args:
        normalized: split off punctuation, as Tercom's `-N`.
        no_punct: leave punctuation out.
        asian_support: with one of the two above, treat Asian characters as words, as Tercom's `-a`.
        case_sensitive: score with regard to case.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    counts: Tensor

    def __init__(
        self, *, normalized: bool, no_punct: bool, asian_support: bool, case_sensitive: bool
    ) -> None:
        super().__init__()
        self.scorer = sacrebleu.TER(
            normalized=normalized,
            no_punct=no_punct,
            asian_support=asian_support,
            case_sensitive=case_sensitive,
        )
        width = NUM_HEADER + 2  # edits; length of the references
        self.add_state("counts", torch.zeros(width, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Adds sentences; each hypothesis comes with its own list of references."""
        rows = sentence_counts(self.scorer, hypotheses, references)
        if rows:
            whole = [[*row[:-1], round(row[-1] * UNITS)] for row in rows]
            self.counts = self.counts + torch.tensor(whole, device=self.counts.device).sum(0)

    def compute(self) -> Tensor:
        """TER of all sentences so far in percent, in float64; more edits than words give over 100."""
        *counts, length = self.counts.tolist()
        return torch.tensor(corpus_score(self.scorer, [*counts, length / UNITS]), dtype=torch.float64)

    def signature(self) -> str:
        """sacrebleu's signature for the sentences that this process saw since the last reset."""
        return corpus_signature(self.scorer, self.counts.tolist())
