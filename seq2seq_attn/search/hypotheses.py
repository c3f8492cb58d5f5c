"""The unfinished hypotheses of a batch, as rows of tensors."""

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
    """Unfinished hypotheses: the same number for each sentence, in adjacent rows, best first.

    Attributes:
        sentences: indices of the sentences in the batch.
        totals: log-probability of each hypothesis, in nats; -inf fills the rows of a sentence that has fewer.
        tokens: ids of each hypothesis so far, begin token first.
        attention_received: attention to each source position so far; None if it is not needed.
        state: the decoder's state after the tokens before the last.
    """

    sentences: Int[Tensor, " sentences"]
    totals: Float[Tensor, "sentences width"]
    tokens: Int[Tensor, "rows tokens"]
    attention_received: Float[Tensor, "rows source"] | None
    state: Any

    @property
    def width(self) -> int:
        return self.totals.shape[1]

    def continued(self, candidates: Candidates, remaining: Int[Tensor, " remaining"]) -> Hypotheses:
        """Return the hypotheses that the candidates make of the sentences `remaining`."""
        totals, parents, token_ids = (x[remaining] for x in candidates)
        rows = (remaining[:, None] * self.width + parents).flatten()
        state, attention_received = self.state, self.attention_received
        if len(rows) != len(self.tokens) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            state, attention_received = (
                state.branch(rows),
                None if attention_received is None else attention_received[rows],
            )
        if len(remaining) < len(self.sentences):
            state = state.keep(remaining)
        tokens = torch.cat([self.tokens[rows], token_ids.reshape(-1, 1)], 1)
        return Hypotheses(self.sentences[remaining], totals, tokens, attention_received, state)
