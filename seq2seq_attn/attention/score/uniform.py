"""Uniform score: 0 for every position, so the context is a mean over the mask. The baseline without attention."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions


@final
class UniformScore(Score):
    """Score of 0 for every pair. With the full pattern the context is the mean of the memory."""

    reads_query: bool = False
    wide_pairs: bool = False
    never_positive: bool = True

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_parts = self.key_parts = 0

    def prepare_query(self, query: Float[Tensor, "batch target query_dim"]) -> tuple[()]:
        return ()

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        blocks, target = positions.query.shape[:-1], positions.query.shape[-1]
        shape = (1, *blocks, self.num_heads, target, positions.key.shape[-1])
        return torch.zeros(shape, device=positions.key.device)
