"""Scaled dot score: (W q) . (U k) / sqrt(d_k). Vaswani et al. 2017, eq. 1 and 3.2.2, arXiv:1706.03762."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.packed_projection import PackableScore
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, matmul_groups, split_heads
from seq2seq_attn.nn.linear import linear
from seq2seq_attn.nn.projections import query_key_projections


@final
class ScaledDotScore(PackableScore):
    """Heads of width d_k.

    Args:
        num_kv_heads: number of heads of keys, each for a group of query heads (`attention.num_kv_heads`); None:
            `num_heads`.
        head_dim: d_k (`attention.head_dim`); None: query_dim / num_heads.
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    inner_product: ClassVar[bool] = True

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
        super().__init__()
        if head_dim is None:
            check_heads("query_dim", query_dim, num_heads)
            head_dim = query_dim // num_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.scale = scale if scale is not None else head_dim**-0.5
        widths = self.num_heads * head_dim, self.num_kv_heads * head_dim
        self.project_query, self.project_key = query_key_projections(query_dim, key_dim, *widths, bias=bias)

    @property
    def projections(self) -> tuple[nn.Linear, nn.Linear]:
        return self.project_query, self.project_key

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        project, scale = self.project_query, self.scale
        if query.shape[:2].numel() < len(project.weight):
            return self.split_query(project(query) * scale)
        # the weight has fewer numbers to scale than its product has
        bias = None if project.bias is None else project.bias * scale
        return self.split_query(linear(query, project.weight * scale, bias))

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch kv_heads source width"]]:
        return self.split_keys(self.project_key(keys))

    def split_query(
        self, projected: Float[Tensor, "batch target heads_width"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(projected, self.num_heads),)

    def split_keys(
        self, projected: Float[Tensor, "batch source heads_width"]
    ) -> tuple[Float[Tensor, "batch kv_heads source width"]]:
        return (split_heads(projected, self.num_kv_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return matmul_groups(query[0], keys[0].mT)
