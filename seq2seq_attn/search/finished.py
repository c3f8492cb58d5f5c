"""The finished hypotheses of each sentence of a batch, and which sentences need no more of them."""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.search.search import Hypothesis


@final
class Finished:
    """Args:
    num_best: the best so many of each sentence are kept; of equals, those that finished first.
    enough: finished hypotheses of a sentence that end its search, good or not; math.inf: only those that no
        other can beat do.
    """

    def __init__(self, sentences: int, *, num_best: int, enough: float, device: torch.device) -> None:
        self.num_best, self.enough = num_best, enough
        self.best: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._counts = [0] * sentences
        # what a hypothesis must beat to be among the best
        self._bars = torch.full((sentences,), -torch.inf, device=device, dtype=torch.float64)

    def add(self, sentences: list[int], hypotheses: list[Hypothesis]) -> None:
        """All that finish in one step, those of a sentence best first."""
        for sentence, hypothesis in zip(sentences, hypotheses, strict=True):
            best = self.best[sentence]
            best.append(hypothesis)
            best.sort(key=lambda found: -found.score)  # stable
            del best[self.num_best :]
            self._counts[sentence] += 1
        raised = {sentence: self._bar(sentence) for sentence in sentences}
        where = torch.tensor(list(raised), device=self._bars.device, dtype=torch.long)
        self._bars[where] = torch.tensor(list(raised.values()), device=where.device, dtype=torch.float64)

    def _bar(self, sentence: int) -> float:
        if self._counts[sentence] >= self.enough:
            return math.inf
        best = self.best[sentence]
        return best[-1].score if len(best) == self.num_best else -math.inf

    def settled(
        self, sentences: Int[Tensor, "sentences"], reach: Float[Tensor, "sentences"]
    ) -> Bool[Tensor, "sentences"]:
        """Whether none of a sentence's hypotheses going on can still change its best ones.

        Args:
            reach: a score that none of them can exceed.
        """
        return reach <= self._bars[sentences]
