"""Relative position encoding: a vector for each clipped distance. Shaw et al. 2018, section 3, arXiv:1803.02155."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding


@final
class RelativePosition(PositionEncoding):
    """Learned vectors of distances; each layer has its own, shared by its heads.

    Args:
        max_distance: k, in tokens; greater distances count as k.
        values: whether values get vectors (eq. 3) in addition to keys (eq. 4).

    Raises:
        UserError: if `max_distance` is less than 1.
    """

    def __init__(self, *, dim: int, max_distance: Annotated[int, "[1, 1000000]"], values: bool) -> None:
        super().__init__(dim=dim)
        if max_distance < 1:
            raise UserError(f"position.max_distance={max_distance} must be at least 1; use 16")
        self.max_distance, self.values = max_distance, values

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        return DistanceTables(head_dim=head_dim, max_distance=self.max_distance, values=self.values)


@final
class DistanceTables(RelativeEncoding):
    """Row clip(key - query, -k, k) + k of a table for keys and of a table for values.

    Queries are multiplied by every row, and the products then selected by distance, so that no tensor has all three
    dimensions target, source and width.
    """

    option: ClassVar[str] = "relative"
    needs_inner_product: ClassVar[bool] = True
    biases: ClassVar[bool] = True

    def __init__(self, *, head_dim: int, max_distance: int, values: bool) -> None:
        super().__init__()
        self.max_distance, self.adds_context = max_distance, values
        shape = (2 * max_distance + 1, head_dim)
        self.key_table = nn.Parameter(torch.empty(shape))
        self.value_table = nn.Parameter(torch.empty(shape)) if values else None
        for table in self.parameters():
            nn.init.xavier_uniform_(table)

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*batch heads target source"]:
        assert query is not None
        row = self._row(query_position, key_position)
        products = query @ self.key_table.mT  # (*batch, heads, target, 2k + 1)
        return products.gather(-1, row.expand(*products.shape[:-1], row.shape[-1]))

    def context(
        self,
        weights: Float[Tensor, "*batch heads target source"],
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*#batch #heads #target #width"]:
        if self.value_table is None:
            return super().context(weights, query_position, key_position)
        wide = at_least_float32(weights)  # many small weights are added up at the two outermost distances
        by_distance = wide.new_zeros(*wide.shape[:-1], len(self.value_table))
        by_distance = by_distance.scatter_add(-1, self._row(query_position, key_position).expand_as(wide), wide)
        return by_distance.to(weights.dtype) @ self.value_table

    def _row(
        self, query_position: Int[Tensor, "*blocks target"], key_position: Int[Tensor, "*blocks source"]
    ) -> Int[Tensor, "*blocks 1 target source"]:
        distance = key_position[..., None, :] - query_position[..., :, None]
        clipped = distance.clamp(-self.max_distance, self.max_distance)
        return (clipped + self.max_distance)[..., None, :, :]
