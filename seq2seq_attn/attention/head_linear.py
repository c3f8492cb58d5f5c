"""A linear map for each head, of which only some outputs may be computed."""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@final
class HeadLinear(nn.Module):
    """W x + b, where every head has its own W and b.

    Args:
        input_dim, output_dim: widths of one head.
    """

    def __init__(self, *, num_heads: int, input_dim: int, output_dim: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, output_dim, input_dim))
        self.bias = nn.Parameter(torch.zeros(num_heads, output_dim)) if bias else None
        bound = math.sqrt(6 / (input_dim + output_dim))  # Xavier, of one head and not of all together
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(
        self, x: Float[Tensor, "*batch heads length input_dim"]
    ) -> Float[Tensor, "*batch heads length output_dim"]:
        outputs = x @ self.weight.mT
        return outputs if self.bias is None else outputs + self.bias.unsqueeze(-2)

    def at(
        self, x: Float[Tensor, "*batch heads length input_dim"], place: Int[Tensor, "*blocks outputs"]
    ) -> Float[Tensor, "*batch heads length outputs"]:
        """The outputs at some places, which may be others in each block."""
        outputs = x @ at_places(self.weight, place).mT
        if self.bias is None:
            return outputs
        return outputs + at_places(self.bias.unsqueeze(-1), place).mT


def at_places(
    table: Float[Tensor, "heads places width"], place: Int[Tensor, "*blocks length"]
) -> Float[Tensor, "*blocks heads length width"]:
    """Rows of a table, the heads behind the blocks."""
    # index_select: its backward is several times as fast as that of table[:, place].
    rows = table.index_select(1, place.flatten()).unflatten(1, place.shape)
    return rows.movedim(0, -3)
