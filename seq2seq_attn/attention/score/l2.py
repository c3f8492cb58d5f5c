"""L2 score: -|W q - U k|^2 / sqrt(d_k). Kim et al. 2021, eq. 4, arXiv:2006.04710."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.packed_projection import PackableScore
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.projections import query_key_projections


@final
class L2Score(PackableScore):
    """The squared distance of a projected query and key in each head: the nearest key has the best score.

    It is the inner product of [2 q, -|q|^2, -1] and [k, 1, |k|^2], so that fused kernels serve it. The paper ties W and
    U and changes the projection of the values, which makes a layer Lipschitz continuous; this is its score alone.

    Args:
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the squared distance (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    inner_product: ClassVar[bool] = True
    never_positive: bool = True

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int, bias: bool, scale: float | None) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads = num_heads
        self.distance_scale = scale if scale is not None else (query_dim // num_heads) ** -0.5
        self.scale = 1.0  # of the projection
        widths = query_dim, query_dim
        self.project_query, self.project_key = query_key_projections(query_dim, key_dim, *widths, bias=bias)

    @property
    def projections(self) -> tuple[nn.Linear, nn.Linear]:
        return self.project_query, self.project_key

    @property
    def rotatable(self) -> bool:
        return False  # two columns are no part of the vectors

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target _"]]:
        return self.split_query(self.project_query(query))

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[Float[Tensor, "batch heads source _"]]:
        return self.split_keys(self.project_key(keys))

    def split_query(
        self, projected: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target _"]]:
        heads = split_heads(projected, self.num_heads)
        lengths = heads.square().sum(-1, keepdim=True)
        return (torch.cat([2 * heads, -lengths, -torch.ones_like(lengths)], -1) * self.distance_scale,)

    def split_keys(
        self, projected: Float[Tensor, "batch source query_dim"]
    ) -> tuple[Float[Tensor, "batch heads source _"]]:
        heads = split_heads(projected, self.num_heads)
        return (torch.cat([F.pad(heads, (0, 1), value=1.0), heads.square().sum(-1, keepdim=True)], -1),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return query[0] @ keys[0].mT
