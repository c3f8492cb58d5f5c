"""L2 score: -|W q - U k|^2 / sqrt(d_k). Kim et al. 2021, eq. 4, arXiv:2006.04710."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.score.projected import ProjectedScore
from seq2seq_attn.nn.precision import at_least_float32


@final
class L2Score(ProjectedScore):
    """The squared distance of a projected query and key in each head: the nearest key has the best score.

    It is the inner product of [2 q, -|q|^2, -1, -1] and [k, 1, h, |k|^2 - h], so that fused kernels serve it; h is
    |k|^2 in bfloat16, so that half precision keeps the digits in which keys differ. The paper ties W and U and changes
    the projection of the values, which makes a layer Lipschitz continuous; this is its score alone.

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
        return False  # three columns are no part of the vectors

    def of_query(self, heads: Float[Tensor, "batch heads target head_dim"]) -> Float[Tensor, "batch heads target _"]:
        lengths = heads.square().sum(-1, keepdim=True)
        return F.pad(torch.cat([2 * heads, -lengths], -1), (0, 2), value=-1.0) * self.distance_scale

    def of_keys(self, heads: Float[Tensor, "batch heads source head_dim"]) -> Float[Tensor, "batch heads source _"]:
        lengths = at_least_float32(heads).square().sum(-1, keepdim=True)
        high = lengths.to(torch.bfloat16).to(lengths.dtype)
        columns = torch.cat([torch.ones_like(lengths), high, lengths - high], -1)
        return torch.cat([heads, columns.to(heads.dtype)], -1)
