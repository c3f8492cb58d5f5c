"""A sacrebleu metric over a corpus that comes in batches, and from several processes."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

import torch
from sacrebleu.metrics.base import Metric as Scorer
from torch import Tensor
from torchmetrics import Metric

from seq2seq_attn.metric.corpus import NUM_HEADER, corpus_score, corpus_signature, sentence_counts


class CorpusMetric(Metric, ABC):
    """A metric of detokenized sentences, whose state is a few integers, whatever the size of the corpus.

    Args:
        scorer: of sacrebleu.
        num_counts: how many counts the scorer's formula needs of a sentence.
        units: the units of the last count in 1, where it is a fraction.
        signed: the processing before the scorer, for the signature.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    counts: Tensor

    def __init__(self, *, scorer: Scorer, num_counts: int, units: int = 1, signed: str = "") -> None:
        super().__init__()
        self.scorer, self.units, self.signed = scorer, units, signed
        self.add_state("counts", torch.zeros(NUM_HEADER + num_counts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Add sentences; each hypothesis has its own list of references."""
        rows = sentence_counts(self.scorer, hypotheses, references)
        if rows:
            whole = [[*row[:-1], round(row[-1] * self.units)] for row in rows]
            self.counts = self.counts + torch.tensor(whole, device=self.counts.device).sum(0)

    def compute(self) -> Tensor:
        """Return the score of all sentences so far, in percent, in float64."""
        *counts, last = self.counts.tolist()
        return torch.tensor(corpus_score(self.scorer, [*counts, last / self.units]), dtype=torch.float64)

    def signature(self) -> str:
        """Return sacrebleu's signature for the sentences of all processes since the last reset."""
        with self.sync_context():
            own = corpus_signature(self.scorer, self.counts.tolist())
        return f"{own}|{self.signed}" if self.signed else own
