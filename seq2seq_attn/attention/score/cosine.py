"""Cosine score, "QK-norm": g cos(W q, U k), with a learned g. Henry et al. 2020, eq. 4-5, arXiv:2010.04245."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.packed_projection import PackableScore
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.projections import query_key_projections


@final
class CosineScore(PackableScore):
    """The cosine of a projected query and key in each head, multiplied by a learned scale: no score is above it.

    The paper has one scale g for a layer, at first log2(L^2 - L) for sentences of L tokens; here each head has its own.

    Args:
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        initial_scale: g before training; the paper's is 11.3 for sentences of 50 tokens.
    """

    inner_product: ClassVar[bool] = True
    scale = 1.0  # of the projection; g multiplies the cosine

    def __init__(
        self, *, query_dim: int, key_dim: int, num_heads: int, bias: bool, initial_scale: Annotated[float, "(0, inf)"]
    ) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads = num_heads
        widths = query_dim, query_dim
        self.project_query, self.project_key = query_key_projections(query_dim, key_dim, *widths, bias=bias)
        self.scales = nn.Parameter(torch.full((num_heads,), initial_scale))

    @property
    def projections(self) -> tuple[nn.Linear, nn.Linear]:
        return self.project_query, self.project_key

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return self.split_query(self.project_query(query))

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return self.split_keys(self.project_key(keys))

    def split_query(
        self, projected: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        heads = unit_length(split_heads(projected, self.num_heads))
        return (heads * self.scales[:, None, None].to(heads.dtype),)

    def split_keys(
        self, projected: Float[Tensor, "batch source query_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (unit_length(split_heads(projected, self.num_heads)),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return query[0] @ keys[0].mT


def unit_length(x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """Divide vectors by their length, in float32 at least, for half precision would take a short one for 0."""
    return F.normalize(at_least_float32(x), dim=-1).to(x.dtype)
