"""A pattern cut into blocks, for any score and normalizer: no pair outside the blocks is ever scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seq2seq_attn.attention.block import Block
from seq2seq_attn.attention.state import Memory, QueryKeyPositions
from seq2seq_attn.nn.masked import intersect_masks

MOST_HIDDEN = 2**22  # numbers that a score may hold at once for its pairs; 16 MiB in float32

Scores = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], QueryKeyPositions], Tensor]
Visible = Callable[[QueryKeyPositions], Tensor | None]
Added = Callable[[Tensor, Tensor, Tensor], Tensor]


@final
class BlockedScores:
    """Scores and weights in the order of rows, the columns of one part behind those of the other.

    So a row meets its normalizer once, whatever blocks it lies in. Columns that its block has not are hidden.

    Args:
        parts: blocks; in each part a row stands in one at most.
        target: number of rows.
        memory: its keys are those of the columns.
        causal: whether a row ends with its own position.
        in_order: bring the columns of a row into the order of their positions, for a normalizer that takes the first
            of equals.
    """

    def __init__(
        self, parts: Sequence[Sequence[Block]], target: int, memory: Memory, *, causal: bool, in_order: bool
    ) -> None:
        self.parts, self.target, self.memory, self.causal = parts, target, memory, causal
        self.device = memory.values.device
        self.widths = [max(block.keys for block in part) for part in parts]
        self.order = self._order() if in_order and len(parts) > 1 else None

    def scores(
        self, query: tuple[Tensor, ...], scores: Scores, visible: Visible, *, hidden: bool
    ) -> tuple[Float[Tensor, "_ heads target columns"], Bool[Tensor, "_ _ target columns"]]:
        """Scores of all rows, and what is seen of them.

        Args:
            hidden: whether a score holds as many numbers for a pair as the query has. Then it goes from tile to
                tile, and computes a tile anew for its gradient.
        """
        found, seen = [], []
        for part, width in zip(self.parts, self.widths, strict=True):
            tiles = [tile for block in part for tile in self._tiles(block, query, hidden)]
            again = hidden and len(tiles) > 1 and torch.is_grad_enabled()
            of_part, seen_in_part = [], []
            for tile in tiles:
                positions = self._positions(tile)
                arguments = (cut(query, positions.query), cut(self.memory.keys, positions.key), positions)
                block = (
                    checkpoint(scores, *arguments, use_reentrant=False, preserve_rng_state=False)
                    if again
                    else scores(*arguments)
                )
                of_part.append(rows_of(block, width))
                seen_in_part.append(rows_of(self._seen(tile, positions, visible), width))
            found.append(self._in_rows(torch.cat(of_part, 2), part))
            seen.append(self._in_rows(torch.cat(seen_in_part, 2), part))
        together, together_seen = torch.cat(found, -1), torch.cat(seen, -1)
        if self.order is None:
            return together, together_seen
        return along(together, self.order), along(together_seen, self.order)

    def context(
        self, weights: Float[Tensor, "batch heads target columns"], added: Added | None
    ) -> Float[Tensor, "batch heads target width"]:
        """Values under weights of all rows; `added`: what weights and positions of a block add to its context."""
        if self.order is not None:
            weights = along(weights, self.order.argsort(-1))
        contexts = []
        for part, of_part in zip(self.parts, weights.split(self.widths, -1), strict=True):
            blocks = self._from_rows(of_part, part).split([block.repeats * block.rows for block in part], 2)
            found = []
            for block, rows in zip(part, blocks, strict=True):
                positions = self._positions(block)
                shares = rows[..., : block.keys].unflatten(2, (block.repeats, block.rows)).movedim(2, 1)
                context = shares @ cut((self.memory.values,), positions.key)[0]
                if added is not None:
                    context = context + added(shares, positions.query, positions.key)
                found.append(rows_of(context, context.shape[-1]))
            contexts.append(self._in_rows(torch.cat(found, 2), part))
        return torch.stack(contexts).sum(0) if len(contexts) > 1 else contexts[0]

    def _tiles(self, block: Block, query: tuple[Tensor, ...], hidden: bool) -> Iterator[Block]:
        if not hidden:
            yield block
            return
        numbers = max(1, sum(len(x) * x.shape[1] * x.shape[3] for x in query))  # of one pair, in all sentences
        yield from block.tiles(max(1, MOST_HIDDEN // numbers))

    def _positions(self, block: Block) -> QueryKeyPositions:
        def query() -> Tensor:
            return block.row_positions(self.device)

        def end() -> Tensor:
            positions = query()
            if self.causal:
                return (positions + 1)[None]
            return self.memory.lengths[:, None, None].expand(-1, *positions.shape)

        return QueryKeyPositions(
            query,
            lambda: block.key_positions(self.device),
            end,
            target_length=self.target,
            source_length=self.memory.source,
        )

    def _seen(
        self, block: Block, positions: QueryKeyPositions, visible: Visible
    ) -> Bool[Tensor, "_ repeats _ rows keys"]:
        seen = block.seen(self.device)[None, :, None]
        mask = self.memory.mask
        of_keys = None if mask is None else mask[:, positions.key][:, :, None, None]
        allowed = intersect_masks(intersect_masks(seen, of_keys), visible(positions))
        assert allowed is not None
        return allowed

    def _in_rows(self, x: Tensor, part: Sequence[Block]) -> Tensor:
        """Rows of a part's blocks in their order; those of no block are 0."""
        if in_sequence(part):
            return F.pad(x, (0, 0, 0, self.target - x.shape[2]))
        rows = self._rows(part)
        order = torch.full((self.target,), len(rows), device=self.device)
        order[rows] = torch.arange(len(rows), device=self.device)
        return F.pad(x, (0, 0, 0, 1)).index_select(2, order)

    def _from_rows(self, x: Tensor, part: Sequence[Block]) -> Tensor:
        return x[:, :, : self._rows(part).shape[0]] if in_sequence(part) else x.index_select(2, self._rows(part))

    def _rows(self, part: Sequence[Block]) -> Int[Tensor, "rows"]:
        return torch.cat([block.row_positions(self.device).flatten() for block in part])

    def _order(self) -> Int[Tensor, "target columns"]:
        """The columns of each row by their positions, those that it has not at the end."""
        positions = []
        for part, width in zip(self.parts, self.widths, strict=True):
            keys = [block.key_positions(self.device)[None, :, None, None] + 1 for block in part]
            rows = [k.expand(-1, -1, -1, b.rows, -1) for k, b in zip(keys, part, strict=True)]
            positions.append(self._in_rows(torch.cat([rows_of(x, width) for x in rows], 2), part)[0, 0])
        together = torch.cat(positions, -1)
        return together.masked_fill(together == 0, self.memory.source + 1).argsort(-1)


def in_sequence(part: Sequence[Block]) -> bool:
    """Whether the rows of the blocks, one after the other, are 0, 1, 2, ..."""
    return all(block.spacing == 1 for block in part)


def cut(tensors: tuple[Tensor, ...], positions: Int[Tensor, "blocks length"]) -> tuple[Tensor, ...]:
    """Positions of (batch, heads, length, width) as (batch, blocks, heads, length, width)."""
    return tuple(x.index_select(2, positions.flatten()).unflatten(2, positions.shape).movedim(2, 1) for x in tensors)


def rows_of(x: Tensor, width: int) -> Tensor:
    """Blocks (batch, blocks, heads, rows, columns) as (batch, heads, all rows, width), 0 in columns behind them."""
    rows = x.movedim(1, 2).flatten(2, 3)
    return F.pad(rows, (0, width - rows.shape[-1]))


def along(x: Tensor, order: Int[Tensor, "target columns"]) -> Tensor:
    return x.gather(-1, order.expand(*x.shape[:2], -1, -1))
