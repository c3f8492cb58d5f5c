"""The finished hypotheses of each sentence of a batch, and which sentences can stop."""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.search.search import Hypothesis, by_score


@final
class Finished:
    """The best finished hypotheses of each sentence.

    Args:
        num_best: number of hypotheses to keep for each sentence; ties go to those that finished first.
        max_finished: number of finished hypotheses after which a sentence stops; math.inf: it stops only once no
            unfinished hypothesis can beat those kept.
    """

    def __init__(self, sentences: int, *, num_best: int, max_finished: float, device: torch.device) -> None:
        self.num_best, self.max_finished = num_best, max_finished
        self.best: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._counts = [0] * sentences
        # the score that a hypothesis must exceed to be kept
        self._bars = torch.full((sentences,), -torch.inf, device=device, dtype=torch.float64)

    def add(self, sentences: list[int], hypotheses: list[Hypothesis]) -> None:
        """Add all hypotheses that finish in one step, those of a sentence best first."""
        for sentence, hypothesis in zip(sentences, hypotheses, strict=True):
            best = self.best[sentence]
            best.append(hypothesis)
            best.sort(key=by_score)  # stable
            del best[self.num_best :]
            self._counts[sentence] += 1
        raised = {sentence: self._bar(sentence) for sentence in sentences}
        where = torch.tensor(list(raised), device=self._bars.device, dtype=torch.long)
        self._bars[where] = torch.tensor(list(raised.values()), device=where.device, dtype=torch.float64)

    def _bar(self, sentence: int) -> float:
        if self._counts[sentence] >= self.max_finished:
            return math.inf
        best = self.best[sentence]
        return best[-1].score if len(best) == self.num_best else -math.inf

    def settled(
        self, sentences: Int[Tensor, " sentences"], bound: Float[Tensor, " sentences"]
    ) -> Bool[Tensor, " sentences"]:
        """Return which sentences are settled: no unfinished hypothesis can still change their best ones.

        Args:
            bound: an upper bound of the scores of each sentence's unfinished hypotheses.
        """
        return bound <= self._bars[sentences]
