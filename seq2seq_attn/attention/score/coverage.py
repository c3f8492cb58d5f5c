"""Coverage score: v . tanh(W q + U k_j + V C_j), C_j = sum of earlier a_j / Phi_j. Tu et al. 2016, arXiv:1601.04811."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.history import ReadsHistory
from seq2seq_attn.attention.score.additive import AdditiveScore, vector_of_tanh
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import split_heads
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.precision import at_least_float32

LEAST_FERTILITY = 1e-6  # where sigmoid underflows; a key with less is attended to once


@final
class CoverageScore(ReadsHistory, Score):
    """The additive score with the linguistic coverage of section 3.1.1: how much of a key was attended to so far.

    Phi_j = N sigmoid(u . k_j) is the fertility of key j, the expected number of target words that it gives; u starts
    at 0, so that every fertility starts at N / 2. Each head has its own coverage, u and V.

    Args:
        hidden_dim: width of the hidden layer over all heads; None: `query_dim`.
        max_fertility: N, the largest fertility; None: every fertility is 1.

    Raises:
        UserError: for a `max_fertility` that is not above 0.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        hidden_dim: Annotated[int | None, "[1, 16384]"],
        max_fertility: Annotated[float | None, "(0, inf)"],
    ) -> None:
        super().__init__()
        self.additive = AdditiveScore(query_dim=query_dim, key_dim=key_dim, num_heads=num_heads, hidden_dim=hidden_dim)
        self.from_coverage = nn.Parameter(torch.empty_like(self.additive.vector))
        nn.init.xavier_uniform_(self.from_coverage)
        self.num_heads, self.max_fertility = num_heads, max_fertility
        self.fertility = None
        if max_fertility is not None:
            if max_fertility <= 0:
                raise UserError(
                    f"attention.score.max_fertility={max_fertility} is not above 0; take 2.0, or null for a fertility "
                    "of 1 for every word"
                )
            self.fertility = Linear(key_dim, num_heads, bias=False)
            nn.init.zeros_(self.fertility.weight)
            self.key_parts = 2

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return self.additive.prepare_query(query)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source _"], ...]:
        prepared = self.additive.prepare_keys(keys)
        if self.fertility is None or self.max_fertility is None:
            return prepared
        return (*prepared, self.max_fertility * split_heads(self.fertility(keys).sigmoid(), self.num_heads))

    def next_history(
        self, history: Float[Tensor, "batch heads target source"], weights: Float[Tensor, "batch heads target source"]
    ) -> Float[Tensor, "batch heads target source"]:
        """Return the sum of the weights, which `forward` divides by the fertility, a constant of the key."""
        return history + weights

    def forward(
        self,
        query: tuple[Tensor, ...],
        keys: tuple[Tensor, ...],
        positions: QueryKeyPositions,
        history: Float[Tensor, "*batch heads target source"] | None = None,
    ) -> Float[Tensor, "*batch heads target source"]:
        if history is None:
            return vector_of_tanh(self.additive.vector, query[0], keys[0])
        coverage = history
        if self.fertility is not None:
            coverage = history / at_least_float32(keys[1]).mT.clamp(min=LEAST_FERTILITY)
        largest = torch.finfo(keys[0].dtype).max / 16
        term = coverage.clamp(max=largest).to(keys[0].dtype).unsqueeze(-1) * self.from_coverage[:, None, None, :]
        return vector_of_tanh(self.additive.vector, query[0], keys[0], term)
