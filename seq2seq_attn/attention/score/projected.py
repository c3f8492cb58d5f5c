"""Inner products of linear projections of queries and keys: what the scores made of W q and U k have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, matmul_groups, split_heads
from seq2seq_attn.nn.linear import is_plain, linear
from seq2seq_attn.nn.projections import query_key_projections


class ProjectedScore(Score):
    """An inner product of heads of projected queries and keys, which `of_query` and `of_keys` may change.

    The projections may be computed in one product with the values' (`packed_projection.py`).

    Args:
        num_kv_heads: number of heads of keys, each for a group of query heads; None: `num_heads`.
        head_dim: width of a head; None: query_dim / num_heads.
        bias: whether the two projections have a bias.

    Attributes:
        head_dim: width of a head.
        scale: factor of a projected query.
    """

    inner_product: ClassVar[bool] = True
    scale: float = 1.0

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool,
    ) -> None:
        super().__init__()
        if head_dim is None:
            check_heads("query_dim", query_dim, num_heads)
            head_dim = query_dim // num_heads
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads or num_heads, head_dim
        widths = self.num_heads * head_dim, self.num_kv_heads * head_dim
        self.project_query, self.project_key = query_key_projections(query_dim, key_dim, *widths, bias=bias)

    @abstractmethod
    def of_query(
        self, heads: Float[Tensor, "batch heads target head_dim"]
    ) -> Float[Tensor, "batch heads target width"]:
        """Return what the inner product takes of projected and scaled queries."""

    @abstractmethod
    def of_keys(
        self, heads: Float[Tensor, "batch kv_heads source head_dim"]
    ) -> Float[Tensor, "batch kv_heads source width"]:
        """Return what the inner product takes of projected keys."""

    @property
    def projections(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of queries and of keys."""
        return self.project_query, self.project_key

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        project, scale = self.project_query, self.scale
        if scale == 1.0:
            return self.split_query(project(query))
        if not is_plain(project) or query.shape[:2].numel() < len(project.weight):
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
        """Return what `prepare_query` makes of a projected and scaled query."""
        return (self.of_query(split_heads(projected, self.num_heads)),)

    def split_keys(
        self, projected: Float[Tensor, "batch source heads_width"]
    ) -> tuple[Float[Tensor, "batch kv_heads source width"]]:
        """Return what `prepare_keys` makes of projected keys."""
        return (self.of_keys(split_heads(projected, self.num_kv_heads)),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return matmul_groups(query[0], keys[0].mT)
