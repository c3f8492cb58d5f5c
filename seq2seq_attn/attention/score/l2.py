"""L2 score: -|W q - U k|^2 / sqrt(d_k). Kim et al. 2021, eq. 4, arXiv:2006.04710."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.score.projected import ProjectedScore


@final
class L2Score(ProjectedScore):
    """The squared distance of a projected query and key in each head: the nearest key has the best score.

    It is the inner product of [2 q, -|q|^2, -1] and [k, 1, |k|^2], so that fused kernels serve it. The paper ties W and
    U and changes the projection of the values, which makes a layer Lipschitz continuous; this is its score alone.

    Args:
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the squared distance (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    never_positive: bool = True

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int, bias: bool, scale: float | None) -> None:
        super().__init__(query_dim=query_dim, key_dim=key_dim, num_heads=num_heads, bias=bias)
        self.distance_scale = scale if scale is not None else self.head_dim**-0.5

    @property
    def rotatable(self) -> bool:
        return False  # two columns are no part of the vectors

    def of_query(self, heads: Float[Tensor, "batch heads target head_dim"]) -> Float[Tensor, "batch heads target _"]:
        lengths = heads.square().sum(-1, keepdim=True)
        return torch.cat([2 * heads, -lengths, -torch.ones_like(lengths)], -1) * self.distance_scale

    def of_keys(self, heads: Float[Tensor, "batch heads source head_dim"]) -> Float[Tensor, "batch heads source _"]:
        return torch.cat([F.pad(heads, (0, 1), value=1.0), heads.square().sum(-1, keepdim=True)], -1)
