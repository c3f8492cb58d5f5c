"""Factorized dense synthesizer: A tiled times B repeated. Tay et al. 2020, arXiv:2005.00743."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score, check_max_length
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import HeadLinear, check_heads, split_heads


@final
class SynthesizerFactorizedDenseScore(Score):
    """The query gives a numbers A and b numbers B; position j has the score A[j mod a] * B[j div a].

    The paper does not say how the two are laid out over the positions; with one tiled and the other repeated, every
    position has a pair of its own. Both read one hidden layer, according to the paper's d (d + a + b) parameters.

    Args:
        max_length: number of positions that it has scores for.
        factors: a and b, whose product is `max_length`; None: the two nearest to each other.
    """

    wide_pairs: bool = False

    def __init__(
        self,
        *,
        query_dim: int,
        num_heads: int,
        max_length: Annotated[int, "[1, 1000000]"],
        factors: Annotated[Sequence[int] | None, "[1, 16384]"],
    ) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads, self.max_length = num_heads, max_length
        self.query_parts, self.key_parts = 2, 0
        self.factors = most_square(max_length) if factors is None else check_factors(factors, max_length)
        width = query_dim // num_heads
        self.hidden = HeadLinear(num_heads=num_heads, input_dim=width, output_dim=width, bias=True)
        self.tiled, self.repeated = (
            HeadLinear(num_heads=num_heads, input_dim=width, output_dim=factor, bias=True) for factor in self.factors
        )

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target a"], Float[Tensor, "batch heads target b"]]:
        hidden = torch.relu(self.hidden(split_heads(query, self.num_heads)))
        return self.tiled(hidden), self.repeated(hidden)

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        check_max_length(self, positions.source_length)
        (tiled, repeated), (a, b) = query, self.factors
        # A product with rows of the identity is exact, and its backward is far faster than that of indexing.
        tile = torch.eye(a, dtype=tiled.dtype, device=tiled.device)[positions.key % a].unsqueeze(-3)
        repeat = torch.eye(b, dtype=tiled.dtype, device=tiled.device)[positions.key // a].unsqueeze(-3)
        return (tiled @ tile.mT) * (repeated @ repeat.mT)


def most_square(product: int) -> tuple[int, int]:
    """Return the two factors that are nearest to each other, the smaller first."""
    smaller = next(a for a in range(math.isqrt(product), 0, -1) if product % a == 0)
    return smaller, product // smaller


def check_factors(factors: Sequence[int], max_length: int) -> tuple[int, int]:
    if len(factors) != 2 or math.prod(factors) != max_length:
        raise UserError(
            f"attention.score.factors={list(factors)} must be two numbers whose product is "
            f"attention.score.max_length={max_length}; take {list(most_square(max_length))}, or null"
        )
    return factors[0], factors[1]
