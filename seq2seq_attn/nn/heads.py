"""Attention heads: splitting and joining the last dimension, and a linear layer with weights per head."""

from __future__ import annotations

import math
from math import gcd
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.search_mode import rounding_may_differ


def split_heads(x: Float[Tensor, "batch length dim"], num_heads: int) -> Float[Tensor, "batch heads length width"]:
    """Return the heads of each position, neighbouring slices of its width."""
    if num_heads == 1:
        return x.unsqueeze(1)
    batch, length, dim = x.shape
    # not -1, which view cannot infer for an empty batch or length
    return x.view(batch, length, num_heads, dim // num_heads).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch length dim"]:
    """Return the heads side by side, the inverse of `split_heads`."""
    if x.shape[1] == 1:
        return x.squeeze(1)
    return x.transpose(1, 2).flatten(-2)


def most_heads(query_dim: int, value_dim: int) -> int:
    """Return the largest number of heads that divides both widths with query heads of 64 or wider; at least 1."""
    both = gcd(query_dim, value_dim)
    return next((heads for heads in range(query_dim // 64, 1, -1) if both % heads == 0), 1)


def check_heads(name: str, dim: int, num_heads: int, option: str = "num_heads") -> None:
    """Raise a UserError if the number of heads, the value of `option`, does not divide the width."""
    if dim % num_heads:
        named = f"{name}={dim}"
        if name.endswith("_dim") and "." not in name:  # an argument of the layer, which a model gives
            named += ", in a model the width (dim) of its encoder or decoder"
        raise UserError(f"attention.{option}={num_heads} does not divide {named}; use a number of heads that does")


def matmul_groups(
    x: Float[Tensor, "*batch heads rows inner"], shared: Float[Tensor, "*batch kv_heads inner columns"]
) -> Float[Tensor, "*batch heads rows columns"]:
    """Return the product of each head with the head that its group shares; groups are neighbours.

    The rows of a group become rows of one product, so that nothing shared is copied.
    """
    heads, groups = x.shape[-3], shared.shape[-3]
    if heads == groups:
        return x @ shared
    product = x.unflatten(-3, (groups, heads // groups)).flatten(-3, -2) @ shared
    return product.unflatten(-2, (heads // groups, x.shape[-2])).flatten(-4, -3)


@final
class HeadLinear(nn.Module):
    """W x + b with separate W and b for each head.

    Args:
        input_dim, output_dim: widths of one head.
    """

    def __init__(self, *, num_heads: int, input_dim: int, output_dim: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, output_dim, input_dim))
        self.bias = nn.Parameter(torch.zeros(num_heads, output_dim)) if bias else None
        bound = math.sqrt(6 / (input_dim + output_dim))  # Xavier, for each head separately
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(
        self, x: Float[Tensor, "*batch heads length input_dim"]
    ) -> Float[Tensor, "*batch heads length output_dim"]:
        outputs = matmul_heads(x, self.weight.mT)
        return outputs if self.bias is None else outputs + self.bias.unsqueeze(-2)

    def at(
        self, x: Float[Tensor, "*batch heads length input_dim"], position: Int[Tensor, "*blocks outputs"]
    ) -> Float[Tensor, "*batch heads length outputs"]:
        """Return the outputs at given positions, which may differ between blocks."""
        outputs = matmul_heads(x, rows_at(self.weight, position).mT)
        if self.bias is None:
            return outputs
        return outputs + rows_at(self.bias.unsqueeze(-1), position).mT


def matmul_heads(
    x: Float[Tensor, "*batch heads rows inner"], weight: Float[Tensor, "*blocks heads inner columns"]
) -> Float[Tensor, "*batch heads rows columns"]:
    """Return the product of each head with a matrix of its own, which all sentences share.

    In a step of a search, the sentences become the rows of one product, for which the matrices need no copies.
    """
    if x.dim() == 4 and x.shape[2] == 1 and weight.dim() == 3 and rounding_may_differ():
        return (x.squeeze(2).transpose(0, 1) @ weight).transpose(0, 1).unsqueeze(2)
    return x @ weight


def project_heads(
    x: Float[Tensor, "batch heads rows inner"], weight: Float[Tensor, "heads output_dim inner"]
) -> Float[Tensor, "batch heads rows output_dim"]:
    """Return W x with a matrix W for each head; all sentences are rows of one product, so that no matrix is copied."""
    batch, _, rows, _ = x.shape
    return (x.transpose(0, 1).flatten(1, 2) @ weight.mT).unflatten(1, (batch, rows)).transpose(0, 1)


def rows_at(
    table: Float[Tensor, "heads positions width"], position: Int[Tensor, "*blocks length"]
) -> Float[Tensor, "*blocks heads length width"]:
    """Return rows of a table, with the heads dimension after the blocks."""
    # index_select, because its backward pass is several times faster than that of table[:, position].
    rows = table.index_select(1, position.flatten()).unflatten(1, position.shape)
    return rows.movedim(0, -3)
