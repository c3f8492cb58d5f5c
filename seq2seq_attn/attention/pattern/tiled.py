"""Patterns without regular blocks: neighbouring rows see about the same keys, which are gathered for a tile of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import GatheredBlock, chunks
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position, check_length_ratio

TILE = 32  # rows for which keys are gathered, at least: fewer make too small products


class TiledPattern(Pattern):
    """A pattern defined pair by pair, by `sees`, from which everything else follows.

    The first `global_rows` rows see every key. All other rows of a tile see few keys between them.

    Args:
        tile: rows of a tile.
        landmarks: rows of a tile, counted from its first, that see between them every key that any of its rows sees.
        global_rows: number of rows that see every key.
        fused_from, blocks_from: as in `Pattern`.
        length_ratio: source positions per target position.

    Raises:
        UserError: for a ratio that is not above 0.
    """

    scattered: ClassVar[bool] = True
    gathers: ClassVar[bool] = True

    def __init__(
        self,
        *,
        tile: int,
        landmarks: Sequence[int],
        global_rows: int,
        fused_from: int,
        blocks_from: int,
        length_ratio: float,
    ) -> None:
        super().__init__()
        check_length_ratio(length_ratio)
        self.tile, self.landmarks, self.global_rows = tile, list(landmarks), global_rows
        self.length_ratio = length_ratio
        if length_ratio == 1:
            self.fused_from, self.blocks_from = fused_from, blocks_from

    @abstractmethod
    def sees(self, centre: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Return whether a query with this centre may attend to this key, for positions that broadcast."""

    def allowed(
        self, centre: Int[Tensor, "#batch target"], key_position: Int[Tensor, " source"]
    ) -> Bool[Tensor, "#batch target source"]:
        return self.sees(centre[..., None], key_position)

    def window(self, position: int, source: int, causal: bool) -> Int[Tensor, " keys"] | None:
        keys = torch.arange(min(source, position + 1) if causal else source)
        seen = keys[self.sees(torch.tensor(aligned_position(position, self.length_ratio)), keys)]
        return seen if len(seen) > 0 else None

    def gathered_blocks(self, target: int, source: int, causal: bool) -> Sequence[GatheredBlock]:
        """Return the global rows, the whole tiles after them, and the rest of the rows.

        When causal, a global row sees no more keys than it has before it, and is like the other rows of its tile.
        """
        tiles = -(-self.global_rows // self.tile)
        first = 0 if causal else min(target, tiles * self.tile)
        rest = target - (target - first) % self.tile
        cuts = [(0, first, 1), (first, self.tile, (rest - first) // self.tile), (rest, target - rest, 1)]
        return [self._gathered(row, rows, repeats, source, causal) for row, rows, repeats in cuts if rows * repeats > 0]

    def _gathered(self, row: int, rows: int, repeats: int, source: int, causal: bool) -> GatheredBlock:
        """Return tiles of `rows` rows from `row` on, each with the keys that any of its rows sees."""
        first, keys = row + rows * torch.arange(repeats), torch.arange(source)
        landmarks = first[:, None] + torch.tensor(self.landmarks).clamp(max=rows - 1)
        seen = torch.empty(repeats, source, dtype=torch.bool)
        for some in chunks(repeats, len(self.landmarks) * source):
            seen[some] = self.sees(landmarks[some, :, None], keys).any(1)
        if causal:
            seen &= keys < first[:, None] + rows
        return GatheredBlock.of(row, rows, seen, self.sees, causal=causal)


def tile_of(block_length: int) -> int:
    """Return the rows of a tile of whole blocks."""
    return block_length * max(1, TILE // block_length)
