"""The hypotheses of a batch that go on, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.search.candidates import Candidates


@final
@dataclass(frozen=True)
class Hypotheses:
    """What goes on: of each sentence as many hypotheses, which stand together as rows, best first.

    Attributes:
        sentences: which of the batch they are.
        totals: log-probability of each hypothesis; -inf: none, where a sentence has fewer than others.
        said: pieces of each so far, begin piece first.
        received: attention to each place of the source so far; None where nobody asks.
    """

    sentences: Int[Tensor, "sentences"]
    totals: Float[Tensor, "sentences width"]
    said: Int[Tensor, "rows said"]
    received: Float[Tensor, "rows source"] | None
    state: Any

    @property
    def width(self) -> int:
        return self.totals.shape[1]

    def continued(self, candidates: Candidates, staying: Int[Tensor, "staying"]) -> Hypotheses:
        """The candidates of the sentences `staying`."""
        totals, parents, pieces = (x[staying] for x in candidates)
        rows = (staying[:, None] * self.width + parents).flatten()
        state, received = self.state, self.received
        if len(rows) != len(self.said) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            state, received = state.branch(rows), None if received is None else received[rows]
        if len(staying) < len(self.sentences):
            state = state.keep(staying)
        said = torch.cat([self.said[rows], pieces.reshape(-1, 1)], 1)
        return Hypotheses(self.sentences[staying], totals, said, received, state)
