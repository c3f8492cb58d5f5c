"""Blocks: a pattern cut into rectangles of rows and keys, most of which repeat one rectangle at regular steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HIDDEN = -1e30  # finite: a row of -inf has a log-sum-exp of 0 in the CPU's kernel
TILE = 32  # rows of a local block: the CPU's flash kernel takes that many at a time
WHOLE = 16  # keys: a window of 94 costs the kernel a tenth more than one of 96, and 63 a quarter more than 64
CHUNK = 2**20  # pairs of a row and a key that are compared at once, 8 MiB of whole numbers


@final
class Band(NamedTuple):
    """Allowed distances, key - row: -before .. after, without 0 if `exclude_self`."""

    before: int
    after: int
    exclude_self: bool = False


@final
class Block(NamedTuple):
    """`rows` rows and `keys` keys, every `spacing`-th position from a first one on, repeated `repeats` times.

    Attributes:
        row, key: positions of the first row and the first key.
        step: positions from one repetition to the next.
        causal: whether the i-th row sees the first i + 1 keys only.
        band: distances allowed inside; None: all.
    """

    row: int
    key: int
    rows: int
    keys: int
    repeats: int = 1
    step: int = 0
    spacing: int = 1
    causal: bool = False
    band: Band | None = None

    def bias(self, like: Float[Tensor, "..."]) -> Float[Tensor, "rows keys"] | None:
        """Return 0 where a row sees a key and HIDDEN elsewhere, for any repetition; `causal` is left to the kernel."""
        if self.band is None:
            return None
        seen = self._replace(causal=False).seen_in_tile(like.device)[0]
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.zeros(seen.shape, dtype=dtype, device=like.device).masked_fill_(~seen, HIDDEN)

    def seen(self, device: torch.device) -> Bool[Tensor, "repeats rows keys"]:
        """Return whether a row sees a key."""
        distance = self.key_positions(device)[:, None] - self.row_positions(device)[:, :, None]
        seen = distance <= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.band is not None:
            seen = seen & (distance >= -self.band.before) & (distance <= self.band.after)
            if self.band.exclude_self:
                seen = seen & (distance != 0)
        return seen

    def seen_in_tile(self, device: torch.device) -> Bool[Tensor, "1 rows keys"]:
        """Return whether a row sees a key, which is the same in all repetitions."""
        return self._replace(repeats=1).seen(device)

    @property
    def uniform(self) -> bool:
        """Whether a row sees all keys of the block, or if `causal` all up to its own."""
        return self.band is None

    @property
    def last_key(self) -> int:
        return self.key + (self.repeats - 1) * self.step + (self.keys - 1) * self.spacing

    def row_positions(self, device: torch.device) -> Int[Tensor, "repeats rows"]:
        return self._positions(self.row, self.rows, device)

    def key_positions(self, device: torch.device) -> Int[Tensor, "repeats keys"]:
        return self._positions(self.key, self.keys, device)

    def _positions(self, first: int, length: int, device: torch.device) -> Tensor:
        moved = first + self.step * torch.arange(self.repeats, device=device)
        return moved[:, None] + self.spacing * torch.arange(length, device=device)

    def tiles(self, most_pairs: int) -> Iterator[Block]:
        """Cut the block into blocks of at most `most_pairs` pairs, or of one row."""
        if self.rows * self.keys <= most_pairs:
            yield from self.repetitions(most_pairs // self.keys)
            return
        height = max(1, most_pairs // self.keys)
        for one in self.repetitions(1):
            for first in range(0, self.rows, height):
                row = one.row + first * self.spacing
                yield one._replace(row=row, rows=min(height, self.rows - first))

    def repetitions(self, most: int) -> Iterator[Block]:
        """Cut the repetitions into blocks of about `most` rows."""
        count = max(1, most // self.rows)
        for first in range(0, self.repeats, count):
            moved = first * self.step
            repeats = min(count, self.repeats - first)
            yield self._replace(row=self.row + moved, key=self.key + moved, repeats=repeats)


@final
class GatheredBlock(NamedTuple):
    """Tiles of `rows` consecutive rows, one tile after another, each with a list of keys of its own.

    Attributes:
        row: position of the first row.
        keys_of_tile: positions of the keys of each tile, in order; a list shorter than the longest ends with zeros.
        pairs: whether a row sees a key of its tile.
    """

    row: int
    rows: int
    keys_of_tile: Int[Tensor, "repeats keys"]
    pairs: Bool[Tensor, "repeats rows keys"]

    @classmethod
    def of(
        cls,
        row: int,
        rows: int,
        seen: Bool[Tensor, "repeats source"],
        sees: Callable[[Tensor, Tensor], Tensor],
        *,
        causal: bool,
    ) -> GatheredBlock:
        """Return the tiles from `row` on.

        Args:
            seen: the keys that any row of a tile sees.
            sees: whether a row sees a key, for positions that broadcast.
            causal: whether a row sees no key after its own position.
        """
        repeats, counts = len(seen), seen.sum(-1)
        keys = torch.zeros(repeats, max([1, *counts.tolist()]), dtype=torch.long)
        tile, key = seen.nonzero(as_tuple=True)  # tile by tile
        first = counts.cumsum(0) - counts  # number of the first key of each tile among all of them
        keys[tile, torch.arange(len(key)) - first[tile]] = key
        listed = torch.arange(keys.shape[1]) < counts[:, None]
        positions = row + torch.arange(repeats * rows).view(repeats, rows, 1)
        pairs = torch.empty(repeats, rows, keys.shape[1], dtype=torch.bool)
        for some in chunks(repeats, rows * keys.shape[1]):
            pairs[some] = sees(positions[some], keys[some, None]) & listed[some, None]
            if causal:
                pairs[some] &= keys[some, None] <= positions[some]
        return cls(row, rows, keys, pairs)

    @property
    def num_bytes(self) -> int:
        return self.keys_of_tile.nbytes + self.pairs.nbytes

    @property
    def repeats(self) -> int:
        return len(self.keys_of_tile)

    @property
    def keys(self) -> int:
        return self.keys_of_tile.shape[1]

    @property
    def spacing(self) -> int:
        return 1

    @property
    def causal(self) -> bool:
        """False: `pairs` hides later keys already."""
        return False

    @property
    def uniform(self) -> bool:
        return False

    def seen(self, device: torch.device) -> Bool[Tensor, "repeats rows keys"]:
        """Return whether a row sees a key."""
        return self.pairs.to(device, non_blocking=True)

    def seen_in_tile(self, device: torch.device) -> Bool[Tensor, "repeats rows keys"]:
        """Return `seen`, which differs from tile to tile."""
        return self.seen(device)

    def row_positions(self, device: torch.device) -> Int[Tensor, "repeats rows"]:
        return self.row + torch.arange(self.repeats * self.rows, device=device).view(self.repeats, self.rows)

    def key_positions(self, device: torch.device) -> Int[Tensor, "repeats keys"]:
        return self.keys_of_tile.to(device, non_blocking=True)

    def tiles(self, most_pairs: int) -> Iterator[GatheredBlock]:
        """Cut the block into blocks of at most `most_pairs` pairs, or of one row."""
        count = max(1, most_pairs // (self.rows * self.keys))
        height = min(self.rows, max(1, most_pairs // self.keys))
        for first in range(0, self.repeats, count):
            some = slice(first, first + count)
            for top in range(0, self.rows, height):
                pairs = self.pairs[some, top : top + height]
                row = self.row + first * self.rows + top
                yield self._replace(row=row, rows=pairs.shape[1], keys_of_tile=self.keys_of_tile[some], pairs=pairs)


AnyBlock = Block | GatheredBlock


def chunks(tiles: int, pairs: int) -> Iterator[slice]:
    """Yield slices of tiles of so many pairs each, about `CHUNK` pairs at once, or one tile."""
    size = max(1, CHUNK // max(1, pairs))
    for first in range(0, tiles, size):
        yield slice(first, first + size)


def window_blocks(rows: int, keys: int, band: Band) -> list[Block]:
    """Return tiles of rows with the keys in their band, in the order of rows; rows that see no key are left out.

    Tiles whose keys are all inside the sequence are one block, whose number of keys is rounded up to a multiple of
    16; the tiles at either end are one block each.
    """
    rows = min(rows, keys + band.before)
    tile = max(TILE, band.before // 2)
    more = -(band.before + tile + band.after) % WHOLE
    before = band.before + min(more, -band.before % tile)  # as many as need no further tile at the beginning
    after = band.before + more - before + band.after
    first = -(-before // tile)
    last = min(rows // tile, (keys - after) // tile)
    if last <= first:
        return [end_block(0, rows, keys, band)]
    middle = Block(
        first * tile, first * tile - before, tile, before + tile + after, repeats=last - first, step=tile, band=band
    )
    blocks = [end_block(0, first * tile, keys, band), middle, end_block(last * tile, rows, keys, band)]
    return [block for block in blocks if block.rows > 0]


def end_block(start: int, end: int, keys: int, band: Band) -> Block:
    """Return rows `start .. end` with those keys of their band that exist."""
    first, last = max(0, start - band.before), min(keys, end + band.after)
    return Block(start, first, end - start, last - first, band=band)


def class_blocks(rows: int, keys: int, k: int, causal: bool) -> list[Block]:
    """Return the residue classes of positions modulo k: each attends to itself only.

    Classes of equal numbers of rows and of keys are one block; classes without a key are left out.
    """
    cuts = sorted({0, rows % k, keys % k, k})
    blocks = []
    for first, end in pairwise(cuts):
        class_rows, class_keys = -(-(rows - first) // k), -(-(keys - first) // k)
        if class_rows > 0 and class_keys > 0:
            blocks.append(Block(first, first, class_rows, class_keys, end - first, step=1, spacing=k, causal=causal))
    return blocks
