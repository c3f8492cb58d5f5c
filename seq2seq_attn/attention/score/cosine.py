"""Cosine score, "QK-norm": g cos(W q, U k), with a learned g. Henry et al. 2020, eq. 4-5, arXiv:2010.04245."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.projected import ProjectedScore
from seq2seq_attn.nn.unit_length import unit_length


@final
class CosineScore(ProjectedScore):
    """The cosine of a projected query and key in each head, multiplied by a learned scale: no score is above it.

    The paper has one scale g for a layer, at first log2(L^2 - L) for sentences of L tokens; here each head has its own.

    Args:
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        initial_scale: g before training; the paper's is 11.3 for sentences of 50 tokens.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        bias: bool,
        initial_scale: Annotated[int | float, "(0, inf)"],
    ) -> None:
        super().__init__(query_dim=query_dim, key_dim=key_dim, num_heads=num_heads, bias=bias)
        self.scales = nn.Parameter(torch.full((num_heads,), float(initial_scale)))

    def of_query(
        self, heads: Float[Tensor, "batch heads target head_dim"]
    ) -> Float[Tensor, "batch heads target head_dim"]:
        return unit_length(heads) * self.scales[:, None, None].to(heads.dtype)

    def of_keys(
        self, heads: Float[Tensor, "batch heads source head_dim"]
    ) -> Float[Tensor, "batch heads source head_dim"]:
        return unit_length(heads)
