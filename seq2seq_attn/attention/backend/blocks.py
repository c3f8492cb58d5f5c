"""Attention in the blocks of a pattern, for any score and normalizer: no pair outside the blocks is ever scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request, join_rows
from seq2seq_attn.attention.block import AnyBlock, GatheredBlock
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.state import Memory, QueryKeyPositions
from seq2seq_attn.nn.dropout import dropout
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.linear import with_zeros
from seq2seq_attn.nn.masked import intersect_masks

MAX_TILE_NUMBERS = 2**22  # held at once by a score that is wider than its pairs; 16 MiB in float32
CACHED_BLOCKS: PatternCache[Sequence[GatheredBlock]] = PatternCache(
    lambda blocks: sum(block.num_bytes for block in blocks)
)

AddContext = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where the pattern has no blocks or changes the weights, or where all pairs are faster."""
    if not (request.starts_at_zero and request.square and request.memory.one_mask):
        return None
    if request.source < parts.pattern.blocks_from or parts.pattern.reweighs:
        return None
    sizes = request.target, request.source, request.triangular
    if not parts.pattern.gathers:
        return attend_rows(parts, request, parts.pattern.block_groups(*sizes), request.target)
    # Each block is all that its rows see, and few rows may see many keys.
    gathered = gathered_blocks(parts.pattern, *sizes)
    return join_rows([attend_rows(parts, request, [[block]], block.repeats * block.rows) for block in gathered])


def gathered_blocks(pattern: Pattern, target: int, source: int, causal: bool) -> Sequence[GatheredBlock]:
    """Return `pattern.gathered_blocks(target, source, causal)`, from the cache if it is there."""
    sizes = target, source, causal
    return CACHED_BLOCKS.make_once(lambda pattern, *sizes: pattern.gathered_blocks(*sizes), pattern, *sizes)


def attend_rows(parts: Parts, request: Request, groups: Sequence[Sequence[AnyBlock]], rows: int) -> HeadOutput:
    """Return the output of the rows of some groups of blocks."""
    blocks = BlockedScores(
        groups,
        rows,
        request.target,
        request.memory,
        causal=request.triangular,
        in_order=not parts.normalizer.is_softmax,
    )
    scores, allowed = blocks.scores(parts, request.prepared)
    scores = scores.expand(len(request.memory.values), *scores.shape[1:])
    weights, log_prob, entropy = parts.normalize(scores, allowed)
    added = parts.relative.context if parts.relative is not None and parts.relative.adds_context else None
    context = blocks.context(dropout(weights, parts.dropout), added)
    return HeadOutput(context, None, log_prob, entropy)


@final
class BlockedScores:
    """Scores and weights by rows, with the columns of one block group after those of the other.

    A row meets its normalizer once, whatever blocks it is in. Columns that the block of a row lacks are hidden.

    Args:
        groups: groups of blocks; within a group a row is in at most one block.
        rows: number of rows.
        target: one past the position of the last row of all.
        memory: its keys are those of the columns.
        causal: whether the last key of a row is its own position.
        in_order: sort the columns of a row by position, for a normalizer that takes the first of equal scores.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[AnyBlock]],
        rows: int,
        target: int,
        memory: Memory,
        *,
        causal: bool,
        in_order: bool,
    ) -> None:
        self.groups, self.rows, self.target, self.memory, self.causal = groups, rows, target, memory, causal
        self.device = memory.values.device
        self.widths = [max(block.keys for block in group) for group in groups]
        self.order = self._order() if in_order and len(groups) > 1 else None

    def scores(
        self, parts: Parts, query: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "_ heads target columns"], Bool[Tensor, "_ _ target columns"]]:
        """Return the scores of all rows, and which of them are allowed.

        A score with `wide_pairs` is computed tile by tile, and once more for its gradient.
        """
        tiled, dtype = parts.score.wide_pairs and not parts.score.inner_product, self.memory.values.dtype
        scores, allowed = [], []
        for group, width in zip(self.groups, self.widths, strict=True):
            tiles = [tile for block in group for tile in self._tiles(block, query, tiled)]
            recompute = tiled and len(tiles) > 1 and torch.is_grad_enabled()
            group_scores, group_allowed = [], []
            for tile in tiles:
                positions = self._positions(tile)
                arguments = (gather(query, positions.query), gather(self.memory.keys, positions.key), positions, dtype)
                tile_scores = (
                    checkpoint(parts.scores, *arguments, use_reentrant=False) if recompute else parts.scores(*arguments)
                )
                group_scores.append(flatten_blocks(tile_scores, width))
                visible = parts.score.visible(positions)
                group_allowed.append(flatten_blocks(self._allowed(tile, positions, visible), width))
            scores.append(to_rows(torch.cat(group_scores, 2), group, self.rows))
            allowed.append(to_rows(torch.cat(group_allowed, 2), group, self.rows))
        all_scores, all_allowed = torch.cat(scores, -1), torch.cat(allowed, -1)
        if self.order is None:
            return all_scores, all_allowed
        return reorder(all_scores, self.order), reorder(all_allowed, self.order)

    def context(
        self, weights: Float[Tensor, "batch heads target columns"], added: AddContext | None
    ) -> Float[Tensor, "batch heads target width"]:
        """Return the values averaged by the weights of all rows.

        Args:
            added: gives what the weights and positions of a block add to its context.
        """
        if self.order is not None:
            weights = reorder(weights, self.order.argsort(-1))
        contexts = []
        for group, group_weights in zip(self.groups, weights.split(self.widths, -1), strict=True):
            block_weights = self._from_rows(group_weights, group).split([b.repeats * b.rows for b in group], 2)
            group_contexts = []
            for block, rows in zip(group, block_weights, strict=True):
                positions = self._positions(block)
                shares = rows[..., : block.keys].unflatten(2, (block.repeats, block.rows)).movedim(2, 1)
                context = matmul_groups(shares, gather((self.memory.values,), positions.key)[0])
                if added is not None:
                    context = context + added(shares, positions.query, positions.key)
                group_contexts.append(flatten_blocks(context, context.shape[-1]))
            contexts.append(to_rows(torch.cat(group_contexts, 2), group, self.rows))
        return torch.stack(contexts).sum(0) if len(contexts) > 1 else contexts[0]

    def _tiles(self, block: AnyBlock, query: tuple[Tensor, ...], tiled: bool) -> Iterator[AnyBlock]:
        if not tiled:
            yield block
            return
        pair_numbers = max(1, sum(len(x) * x.shape[1] * x.shape[3] for x in query))  # of one pair, in all sentences
        yield from block.tiles(max(1, MAX_TILE_NUMBERS // pair_numbers))

    def _positions(self, block: AnyBlock) -> QueryKeyPositions:
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

    def _allowed(
        self, block: AnyBlock, positions: QueryKeyPositions, visible: Bool[Tensor, "..."] | None
    ) -> Bool[Tensor, "_ repeats _ rows keys"]:
        inside = block.seen(self.device)[None, :, None]
        mask = self.memory.mask
        key_mask = None if mask is None else mask[:, positions.key][:, :, None, None]
        allowed = intersect_masks(intersect_masks(inside, key_mask), visible)
        assert allowed is not None
        return allowed

    def _from_rows(self, x: Tensor, group: Sequence[AnyBlock]) -> Tensor:
        rows = row_positions(group, self.device)
        return x[:, :, : len(rows)] if in_sequence(group) else x.index_select(2, rows)

    def _order(self) -> Int[Tensor, "target columns"]:
        """Return the columns of each row in the order of their positions, those that it lacks last."""
        positions = []
        for group, width in zip(self.groups, self.widths, strict=True):
            keys = [block.key_positions(self.device)[None, :, None, None] + 1 for block in group]
            rows = [k.expand(-1, -1, -1, b.rows, -1) for k, b in zip(keys, group, strict=True)]
            flat = torch.cat([flatten_blocks(x, width) for x in rows], 2)
            positions.append(to_rows(flat, group, self.rows)[0, 0])
        all_positions = torch.cat(positions, -1)
        return all_positions.masked_fill(all_positions == 0, self.memory.source + 1).argsort(-1)


def to_rows(x: Tensor, group: Sequence[AnyBlock], rows: int) -> Tensor:
    """Sort the rows of a group's blocks, (batch, heads, rows, columns); rows of no block are 0."""
    if in_sequence(group):
        return with_zeros(x, rows - x.shape[2])
    positions = row_positions(group, x.device)
    order = torch.full((rows,), len(positions), device=x.device)
    order[positions] = torch.arange(len(positions), device=x.device)
    return F.pad(x, (0, 0, 0, 1)).index_select(2, order)


def row_positions(group: Sequence[AnyBlock], device: torch.device) -> Int[Tensor, " rows"]:
    return torch.cat([block.row_positions(device).flatten() for block in group])


def in_sequence(group: Sequence[AnyBlock]) -> bool:
    """Return whether the rows of the blocks, one block after another, are consecutive: unless they are spaced."""
    return all(block.spacing == 1 for block in group)


def gather(tensors: tuple[Tensor, ...], positions: Int[Tensor, "blocks length"]) -> tuple[Tensor, ...]:
    """Take positions of (batch, heads, length, width), as (batch, blocks, heads, length, width)."""
    return tuple(x.index_select(2, positions.flatten()).unflatten(2, positions.shape).movedim(2, 1) for x in tensors)


def flatten_blocks(x: Tensor, width: int) -> Tensor:
    """Turn (batch, blocks, heads, rows, columns) into (batch, heads, all rows, width), padded with zeros."""
    rows = x.movedim(1, 2).flatten(2, 3)
    missing = width - rows.shape[-1]
    return F.pad(rows, (0, missing)) if missing else rows  # padding by nothing would copy them


def reorder(x: Tensor, order: Int[Tensor, "target columns"]) -> Tensor:
    return x.gather(-1, order.expand(*x.shape[:2], -1, -1))
