"""The blocks of a pattern cut into tiles of few rows for the kernels of a GPU, as one table of whole numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import Band, Block, GatheredBlock, window_blocks

ANY_DISTANCE = 2**30  # of a tile without a band


@final
class Tile(NamedTuple):
    """Rows and the keys that they may see. The order of the fields is that of the columns the kernels read.

    Attributes:
        row, key: positions of the first row and, unless the keys are listed, of the first key.
        rows, keys: how many there are.
        spacing: positions from one row, and from one key, to the next.
        before, after: distances, key - row, that are allowed.
        exclude_self: 1 if a row does not see its own position, else 0.
        group: number of the block group; within a group a row is in at most one tile.
        first_listed: index of the tile's first key in the list of keys, if they are listed.
        first_pair: index of the pair of the tile's first row and key in the list of pairs, if its keys are listed.
        pairs_of_row: pairs from one row to the next.
    """

    row: int
    key: int
    rows: int
    keys: int
    spacing: int = 1
    before: int = ANY_DISTANCE
    after: int = ANY_DISTANCE
    exclude_self: int = 0
    group: int = 0
    first_listed: int = 0
    first_pair: int = 0
    pairs_of_row: int = 0


@final
class TileList(NamedTuple):
    """All tiles of a pattern at some length, those with the most keys first, so that none of them starts last.

    Attributes:
        table: a row for each `Tile`.
        groups: number of block groups.
        most_rows: rows of a tile, at most.
        listed_keys: positions of the keys of the tiles whose keys are listed; None: of all tiles they are not.
        pairs: whether a row sees a listed key, by tile, row and key.
    """

    table: Int[Tensor, "tiles columns"]
    groups: int
    most_rows: int
    listed_keys: Int[Tensor, " listed"] | None = None
    pairs: Bool[Tensor, " pairs"] | None = None

    def to(self, device: torch.device) -> TileList:
        """Return it on a GPU, without waiting for it."""
        tensors = (self.table, self.listed_keys, self.pairs)
        table, *moved = (x if x is None else x.pin_memory().to(device, non_blocking=True) for x in tensors)
        assert table is not None
        return TileList(table, self.groups, self.most_rows, *moved)

    @property
    def num_bytes(self) -> int:
        tensors = (self.table, self.listed_keys, self.pairs)
        return sum(x.numel() * x.element_size() for x in tensors if x is not None)


def tiles_of_blocks(groups: Sequence[Sequence[Block]], target: int, source: int, most_rows: int) -> TileList:
    """Return the tiles of groups of blocks.

    Args:
        groups: they hold each allowed pair once; within a group a row is in at most one block.
        most_rows: rows of a tile, at most.
    """
    tiles: list[Tile] = []
    for number, blocks in enumerate(groups):
        band = blocks[0].band if blocks else None
        if band is not None and list(blocks) == window_blocks(target, source, band):
            tiles += window_tiles(target, source, band, most_rows, number)  # fewer of them than the blocks have
        else:
            tiles += (tile for block in blocks for tile in block_tiles(block, most_rows, number))
    return TileList(as_table(tiles), len(groups), most_rows)


def tiles_of_gathered(blocks: Sequence[GatheredBlock], most_rows: int) -> TileList:
    """Return the tiles of blocks that list their keys, in which a row is in at most one block."""
    tiles: list[Tile] = []
    first_listed = first_pair = 0
    for block in blocks:
        tiles += gathered_tiles(block, most_rows, first_listed, first_pair)
        first_listed += block.keys_of_tile.numel()
        first_pair += block.pairs.numel()
    listed = torch.cat([torch.zeros(0, dtype=torch.int32), *(block.keys_of_tile.flatten().int() for block in blocks)])
    pairs = torch.cat([torch.zeros(0, dtype=torch.bool), *(block.pairs.flatten() for block in blocks)])
    return TileList(as_table(tiles), 1, most_rows, listed, pairs)


def as_table(tiles: list[Tile]) -> Int[Tensor, "tiles columns"]:
    ordered = sorted(tiles, key=lambda tile: -tile.keys)
    return torch.tensor(ordered, dtype=torch.int32).view(-1, len(Tile._fields))


def window_tiles(target: int, source: int, band: Band, most_rows: int, group: int) -> Iterator[Tile]:
    """Yield tiles of all rows, with those keys of their band that exist; rows that see none are left out."""
    for row in range(0, target, most_rows):
        end = min(row + most_rows, target)
        first, last = max(0, row - band.before), min(source, end + band.after)
        if last > first:
            yield Tile(row, first, end - row, last - first, 1, band.before, band.after, int(band.exclude_self), group)


def block_tiles(block: Block, most_rows: int, group: int) -> Iterator[Tile]:
    """Yield tiles of all repetitions of a block; those of a causal one have the keys up to their last row only."""
    band = block.band or Band(ANY_DISTANCE, ANY_DISTANCE)
    after = min(band.after, 0) if block.causal else band.after
    for repeat in range(block.repeats):
        moved = repeat * block.step
        for first in range(0, block.rows, most_rows):
            rows = min(most_rows, block.rows - first)
            row, key, keys = block.row + moved + first * block.spacing, block.key + moved, block.keys
            if block.causal:
                last_row = row + (rows - 1) * block.spacing
                keys = min(keys, (last_row - key) // block.spacing + 1)
            if keys > 0:
                yield Tile(row, key, rows, keys, block.spacing, band.before, after, int(band.exclude_self), group)


def gathered_tiles(block: GatheredBlock, most_rows: int, first_listed: int, first_pair: int) -> Iterator[Tile]:
    """Yield the tiles of a block, each with as many keys of its list as its rows see."""
    for first in range(0, block.rows, most_rows):
        rows = min(most_rows, block.rows - first)
        seen = block.pairs[:, first : first + rows].any(1)
        counts = torch.where(seen, torch.arange(1, block.keys + 1), 0).amax(-1).tolist()  # up to the last one seen
        for number, keys in enumerate(counts):
            if keys > 0:
                yield Tile(
                    block.row + number * block.rows + first,
                    0,
                    rows,
                    keys,
                    first_listed=first_listed + number * block.keys,
                    first_pair=first_pair + (number * block.rows + first) * block.keys,
                    pairs_of_row=block.keys,
                )
