"""A metric of texts over a corpus that comes in batches, and from several processes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.chosen_metric import ChosenMetric
from seq2seq_attn.metric.corpus import NUM_HEADER


class TextMetric(ChosenMetric):
    """A score of the sum of a few counts of each sentence.

    The state is that sum in integers, whatever the size of the corpus, so that the score does not depend on how
    processes share the sentences.

    Args:
        num_counts: how many counts the score needs of a sentence, besides the header (see `metric.corpus`).
        units: the units of the last count in 1, where it is a fraction.

    Attributes:
        has_interval: whether the score of a resampled test set means something.
    """

    has_interval: ClassVar[bool] = True
    counts: Tensor

    def __init__(self, *, num_counts: int, units: int = 1) -> None:
        super().__init__()
        self.units = units
        self.add_state("counts", torch.zeros(NUM_HEADER + num_counts, dtype=torch.int64), dist_reduce_fx="sum")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy all but the scorer, which nothing changes: some of sacrebleu's tokenizers cannot be copied."""
        if (scorer := self.__dict__.get("scorer")) is not None:
            memo[id(scorer)] = scorer
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied

    @abstractmethod
    def sentence_counts(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> list[list[int | float]]:
        """Return a row for each sentence: the header, then the counts."""

    @abstractmethod
    def score(self, counts: Any) -> Any:
        """Return the score of the summed rows of a corpus, a float of the type of the counts."""

    @abstractmethod
    def signature(self, bootstrap: tuple[int, str] | None = None) -> str:
        """Return what is to be quoted with the score of all sentences since the last reset.

        Args:
            bootstrap: number of resampled test sets and seed, if the score is their mean.
        """

    def update(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> None:
        """Add sentences; each hypothesis has its own list of references."""
        self.add(self.sentence_counts(hypotheses, references, sources))

    def add(self, rows: Sequence[Sequence[int | float]]) -> None:
        """Add the counts of sentences, as `sentence_counts` returns them.

        Raises:
            UserError: if they are not finite.
        """
        broken = [count for row in rows for count in row if not math.isfinite(count)]
        if broken:
            raise UserError(
                f"{type(self).__name__} returns {broken[0]} for a sentence, and what it counts or scores must be "
                "finite; return 0 where there is nothing to score"
            )
        if rows:
            whole = [[*row[:-1], round(row[-1] * self.units)] for row in rows]
            self.counts = self.counts + torch.tensor(whole, device=self.counts.device).sum(0)

    def compute(self) -> Tensor:
        """Return the score of all sentences so far, in percent, in float64."""
        *counts, last = self.counts.tolist()
        return torch.tensor(self.score([*counts, last / self.units]), dtype=torch.float64)
