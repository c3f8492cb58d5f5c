"""Work for a GPU: the blocks of a pattern cut into pieces of few rows, each a row of one table of whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import AnyBlock, Band, Block, GatheredBlock

ANY_DISTANCE = 2**30  # of a piece without a band


@final
class Piece(NamedTuple):
    """Rows and the keys that they may see. The order of the fields is that of the columns the kernels read.

    Attributes:
        row, key: positions of the first row and, unless they are listed, of the first key.
        rows, keys: how many there are.
        spacing: positions from one row, and from one key, to the next.
        before, after: distances, key - row, that are allowed.
        exclude_self: 1 if a row does not see its own position, else 0.
        group: number of the block group; within a group a row is in at most one piece.
        listed: where the list of the piece's keys begins, if they are listed.
        pair: where the piece's pairs begin, row after row, if its keys are listed.
        pairs_of_row: numbers from the pairs of one row to those of the next.
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
    listed: int = 0
    pair: int = 0
    pairs_of_row: int = 0


@final
class WorkList(NamedTuple):
    """All pieces of a pattern at some length, the longest first.

    Attributes:
        groups: number of block groups.
        most_rows: rows of a piece, at most.
        listed_keys, pairs: of the pieces whose keys are listed; None: none are.
    """

    pieces: Int[Tensor, "pieces columns"]
    groups: int
    most_rows: int
    listed_keys: Int[Tensor, " listed"] | None = None
    pairs: Bool[Tensor, " pairs"] | None = None

    def to(self, device: torch.device) -> WorkList:
        """Return it on a GPU, without waiting for it."""
        tensors = (self.pieces, self.listed_keys, self.pairs)
        pieces, *moved = (x if x is None else x.pin_memory().to(device, non_blocking=True) for x in tensors)
        assert pieces is not None
        return WorkList(pieces, self.groups, self.most_rows, *moved)


def work_list(groups: Sequence[Sequence[AnyBlock]], target: int, source: int, most_rows: int) -> WorkList:
    """Return the pieces of groups of blocks.

    Args:
        groups: they hold each allowed pair once; within a group a row is in at most one block.
        most_rows: rows of a piece, at most.
    """
    pieces: list[Piece] = []
    lists: list[Tensor] = []
    pairs: list[Tensor] = []
    for number, blocks in enumerate(groups):
        gathered = [block for block in blocks if isinstance(block, GatheredBlock)]
        regular = [block for block in blocks if isinstance(block, Block)]
        band = regular[0].band if regular else None
        if band is not None and all(block.band == band and block.spacing == 1 for block in regular):
            last = max(block.row + (block.repeats - 1) * block.step + block.rows for block in regular)
            pieces += window_pieces(last, source, band, most_rows, number)
        else:
            pieces += (piece for block in regular for piece in block_pieces(block, most_rows, number))
        for block in gathered:
            first, listed = sum(map(len, lists)), sum(map(len, pairs))
            pieces += gathered_pieces(block, most_rows, number, first, listed)
            lists.append(block.keys_of_tile.flatten())
            pairs.append(block.pairs.flatten())
    pieces.sort(key=lambda piece: -piece.keys)  # the longest do not start last
    table = torch.tensor(pieces, dtype=torch.int32).view(-1, len(Piece._fields))
    if not lists:
        return WorkList(table, len(groups), most_rows)
    return WorkList(table, len(groups), most_rows, torch.cat(lists).int(), torch.cat(pairs))


def window_pieces(rows: int, source: int, band: Band, most_rows: int, group: int) -> Iterator[Piece]:
    """Yield pieces of rows 0 .. `rows` with those keys of their band that exist."""
    for row in range(0, rows, most_rows):
        end = min(row + most_rows, rows)
        first, last = max(0, row - band.before), min(source, end + band.after)
        if last > first:
            yield Piece(row, first, end - row, last - first, 1, band.before, band.after, int(band.exclude_self), group)


def block_pieces(block: Block, most_rows: int, group: int) -> Iterator[Piece]:
    """Yield pieces of all repetitions of a block; a causal one has the keys up to its last row only."""
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
                exclude = int(band.exclude_self)
                yield Piece(row, key, rows, keys, block.spacing, band.before, after, exclude, group)


def gathered_pieces(
    block: GatheredBlock, most_rows: int, group: int, first_listed: int, first_pair: int
) -> Iterable[Piece]:
    """Yield pieces of all tiles of a block, each with as many keys of its list as its rows see."""
    for tile, (listed, seen) in enumerate(zip(block.keys_of_tile, block.pairs, strict=True)):
        for first in range(0, block.rows, most_rows):
            some = seen[first : first + most_rows].any(0).nonzero()
            if len(some) > 0:
                yield Piece(
                    block.row + tile * block.rows + first,
                    0,
                    min(most_rows, block.rows - first),
                    int(some[-1]) + 1,
                    group=group,
                    listed=first_listed + tile * len(listed),
                    pair=first_pair + (tile * block.rows + first) * block.keys,
                    pairs_of_row=block.keys,
                )
