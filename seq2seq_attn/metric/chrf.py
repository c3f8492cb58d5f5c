"""Corpus chrF (chrF++ with word_order 2), to the digit of the `sacrebleu` command. Popović 2015, 2017."""

from collections.abc import Sequence
from typing import final

import sacrebleu
import torch
from torch import Tensor
from torchmetrics import Metric

from seq2seq_attn.metric.corpus import NUM_HEADER, corpus_score, corpus_signature, sentence_counts
from seq2seq_attn.tensors.error import UserError


@final
class CHRF(Metric):
    """Takes detokenized sentences; its state is a few integers, whatever the size of the corpus.

    Args:
        char_order: longest character n-gram.
        word_order: longest word n-gram; 0 is chrF, 2 is chrF++.
        beta: how many times recall weighs as much as precision.
        lowercase: score without regard to case.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    counts: Tensor

    def __init__(self, *, char_order: int, word_order: int, beta: int, lowercase: bool) -> None:
        super().__init__()
        if char_order < 1 or word_order < 0 or beta < 0:
            raise UserError(
                "chrF needs char_order >= 1, word_order >= 0 and beta >= 0, "
                f"got {char_order}, {word_order} and {beta}; papers report 6, 0 (chrF++: 2) and 2"
            )
        self.scorer = sacrebleu.CHRF(
            char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase
        )
        width = NUM_HEADER + 3 * self.scorer.order  # n-grams of hypothesis, of reference, in both
        self.add_state("counts", torch.zeros(width, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Adds sentences; each hypothesis comes with its own list of references."""
        rows = sentence_counts(self.scorer, hypotheses, references)
        if rows:
            self.counts = self.counts + torch.tensor(rows, device=self.counts.device).sum(0)

    def compute(self) -> Tensor:
        """chrF of all sentences so far, 0-100, in float64."""
        return torch.tensor(corpus_score(self.scorer, self.counts.tolist()), dtype=torch.float64)

    def signature(self) -> str:
        """sacrebleu's signature for the sentences that this process saw since the last reset."""
        return corpus_signature(self.scorer, self.counts.tolist())
