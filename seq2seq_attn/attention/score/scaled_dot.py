"""Scaled dot score: (W q) . (U k) / sqrt(d_k). Vaswani et al. 2017, eq. 1 and 3.2.2, arXiv:1706.03762."""

from __future__ import annotations

from typing import final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.projected import ProjectedScore


@final
class ScaledDotScore(ProjectedScore):
    """Inner products of projected queries and keys, divided by the root of d_k, the width of a head.

    Args:
        num_kv_heads: number of heads of keys, each for a group of query heads (`attention.num_kv_heads`); None:
            `num_heads`.
        head_dim: d_k (`attention.head_dim`); None: query_dim / num_heads.
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        num_kv_heads: int | None,
        head_dim: int | None,
        bias: bool,
        scale: float | None,
    ) -> None:
        super().__init__(
            query_dim=query_dim,
            key_dim=key_dim,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            bias=bias,
        )
        self.scale = scale if scale is not None else self.head_dim**-0.5

    def of_query(
        self, heads: Float[Tensor, "batch heads target head_dim"]
    ) -> Float[Tensor, "batch heads target head_dim"]:
        return heads

    def of_keys(
        self, heads: Float[Tensor, "batch kv_heads source head_dim"]
    ) -> Float[Tensor, "batch kv_heads source head_dim"]:
        return heads
