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
        said: tokens of each so far, begin token first.
        received: attention to each position of the source so far; None where nobody asks.
    """

    sentences: Int[Tensor, "sentences"]
    totals: Float[Tensor, "sentences width"]
    said: Int[Tensor, "rows said"]
    attention_received: Float[Tensor, "rows source"] | None
    state: Any

    @property
    def width(self) -> int:
        return self.totals.shape[1]

    def continued(self, candidates: Candidates, staying: Int[Tensor, "staying"]) -> Hypotheses:
        """The candidates of the sentences `staying`."""
        totals, parents, token_ids = (x[staying] for x in candidates)
        rows = (staying[:, None] * self.width + parents).flatten()
        state, attention_received = self.state, self.attention_received
        if len(rows) != len(self.said) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            state, attention_received = (
                state.branch(rows),
                None if attention_received is None else attention_received[rows],
            )
        if len(staying) < len(self.sentences):
            state = state.keep(staying)
        said = torch.cat([self.said[rows], token_ids.reshape(-1, 1)], 1)
        return Hypotheses(self.sentences[staying], totals, said, attention_received, state)
