"""Dense synthesizer: W2 relu(W1 x + b1) + b2, a score for each position. Tay et al. 2020, eq. 1-2, arXiv:2005.00743."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score, check_max_length
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import HeadLinear, check_heads, split_heads


@final
class SynthesizerDenseScore(Score):
    """A perceptron of the query for each head: it reads the head's slice, and its hidden layer is as wide.

    Args:
        max_length: number of positions that it has scores for.
    """

    wide_pairs: bool = False

    def __init__(self, *, query_dim: int, num_heads: int, max_length: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads, self.max_length = num_heads, max_length
        self.key_parts = 0
        width = query_dim // num_heads
        self.hidden = HeadLinear(num_heads=num_heads, input_dim=width, output_dim=width, bias=True)
        self.score = HeadLinear(num_heads=num_heads, input_dim=width, output_dim=max_length, bias=True)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (torch.relu(self.hidden(split_heads(query, self.num_heads))),)

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        check_max_length(self, positions.source_length)
        return self.score.at(query[0], positions.key)
