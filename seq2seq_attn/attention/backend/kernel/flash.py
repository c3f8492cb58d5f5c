"""Softmax attention in blocks, each by the CPU's flash kernel, joined exactly through their log-sum-exps.

Dao et al. 2022, arXiv:2205.14135, join the tiles of a row in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2seq_attn.attention.block import HIDDEN, Block

# Rows computed at once: few enough that what they need stays in a core's cache, and a small part of all memory; a
# short sequence has many blocks of few rows, and twice as many rows at once spare it half of the calls. Tried on two
# unsteady CPU cores, 8 heads of 64, k = 32 and 64: 256 against 128 gains a sixth or more at 2048 positions and loses a
# sixth at 4096 and 8192.
ROWS, ROWS_OF_SHORT, LONG = 128, 256, 4096
SHARE = 16  # of all rows: what a call about classes takes at most


@final
class Group(NamedTuple):
    """Sentences `first .. end` of a batch that are cut alike: parts that together hold each pair once.

    Attributes:
        keys: how many each sentence has, where the parts may hold more; those behind are hidden.
        rows: likewise; those behind are 0.
    """

    first: int
    end: int
    parts: Sequence[Sequence[Block]]
    keys: list[int] | None = None
    rows: list[int] | None = None

    def biases(
        self, block: Block, band: Float[Tensor, "rows keys"] | None, like: Float[Tensor, "..."]
    ) -> Sequence[Tensor | None]:
        """What each of the block's views adds to its scores: that of its band, and far down where no key is left."""
        sentences = self.end - self.first
        if self.keys is None or block.last_key < min(self.keys):
            return [band] * min(sentences, block.repeats)
        there = torch.tensor(self.keys, device=like.device)[:, None, None]
        gone = block.key_positions(like.device) >= there  # (sentences, repeats, keys)
        dtype = torch.promote_types(like.dtype, torch.float32)
        far_down = torch.zeros(gone.shape, dtype=dtype, device=like.device).masked_fill_(gone, HIDDEN)
        of_views = [x[:, None, None] for x in far_down.unbind(1 if by_repetition(sentences, block) else 0)]
        return of_views if band is None else [x + band for x in of_views]

    def unseeing(self, total: Float[Tensor, "sentences heads rows 1"]) -> Bool[Tensor, "sentences heads rows 1"]:
        """Rows that see no key, or are padding."""
        seen = total > HIDDEN / 2
        if self.rows is not None:
            positions = torch.arange(total.shape[2], device=total.device)[:, None]
            seen = seen & (positions < torch.tensor(self.rows, device=total.device)[:, None, None, None])
        return ~seen


@final
class BlockAttention(torch.autograd.Function):
    """softmax(query keys^T) values over the pairs of the blocks; a row in none of them is 0.

    A pair's weight is exp(score - log-sum-exp of its whole row). So each block's own backward, given the output and
    log-sum-exp of whole rows, finds the exact gradient of its pairs.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, groups: Sequence[Group]) -> Tensor:
        context = torch.zeros_like(query)
        wide = torch.promote_types(query.dtype, torch.float32)
        total = torch.full((*query.shape[:3], 1), HIDDEN, dtype=wide, device=query.device)
        of_rows, of_columns = (query, context, total), (keys, values)
        for number, block, bias, (q, out, lse), (k, v) in tiles(groups, of_rows, of_columns):
            more, more_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, is_causal=block.causal, attn_mask=bias, scale=1.0
            )
            if number == 0:
                out.copy_(more)
                lse.copy_(more_lse.unsqueeze(-1))
            else:
                join(out, lse, more, more_lse.unsqueeze(-1))
            del more, more_lse  # before the next are made: at most one token is held
        for group in groups:
            if group.keys is not None or group.rows is not None:
                whole = slice(group.first, group.end)
                unseeing = group.unseeing(total[whole])
                context[whole].masked_fill_(unseeing, 0.0)
                total[whole].masked_fill_(unseeing, -HIDDEN)  # far up: their pairs weigh exp(score - it) = 0
        ctx.save_for_backward(query, keys, values, context, total)
        ctx.groups = groups
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, context, total = ctx.saved_tensors
        upstream = in_rows(upstream)
        of_query, of_keys, of_values = beginnings(ctx.groups, query, keys, values)
        of_rows = (query, context, total, upstream, of_query)
        of_columns = (keys, values, of_keys, of_values)
        for number, block, bias, (q, out, lse, up, to_q), (k, v, to_k, to_v) in tiles(ctx.groups, of_rows, of_columns):
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                up, q, k, v, out, lse.squeeze(-1), 0.0, block.causal, attn_mask=bias, scale=1.0
            )
            if number == 0:
                to_q.copy_(found[0])
            else:
                to_q.add_(found[0])
            if number == 0 and block.spacing > 1:  # classes have no key in common
                to_k.copy_(found[1])
                to_v.copy_(found[2])
            else:
                add_windows(to_k, found[1], block)
                add_windows(to_v, found[2], block)
            del found
        return of_query, of_keys, of_values, None


def in_rows(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch heads length width"]:
    """Rows in memory, as a product of matrices reads them: an expanded tensor has none."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


def beginnings(groups: Sequence[Group], query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """What gradients are written into: zeros, where something is added or a row or key lies in no block."""
    rows, columns = query.shape[2], keys.shape[2]
    whole = len(groups) > 0
    classes = True
    for group in groups:
        first = group.parts[0] if group.parts else ()
        whole &= sum(block.rows * block.repeats for block in first) == rows
        classes &= sum(block.keys * block.repeats for block in first if block.spacing > 1) == columns
    of_query = torch.empty_like(query) if whole else torch.zeros_like(query)
    made = torch.empty_like if classes else torch.zeros_like
    return of_query, made(keys), made(values)


def join(
    out: Float[Tensor, "repeats heads rows width"],
    lse: Float[Tensor, "repeats heads rows 1"],
    more: Float[Tensor, "repeats heads rows width"],
    more_lse: Float[Tensor, "repeats heads rows 1"],
) -> None:
    """Write into `out` and `lse` what they are once the rows have seen more keys."""
    both = torch.logaddexp(lse, more_lse)
    out.mul_((lse - both).exp_()).add_(more.mul_((more_lse - both).exp_()))
    lse.copy_(both)


def add_windows(
    to: Float[Tensor, "repeats heads keys width"], found: Float[Tensor, "repeats heads keys width"], block: Block
) -> None:
    """Add what each window found to the sequence; windows that overlap take turns."""
    overlapping = block.repeats > 1 and block.spacing == 1
    turn = block.step if overlapping else block.keys
    for start in range(0, block.keys, turn):
        to[:, :, start : start + turn].add_(found[:, :, start : start + turn])


def tiles(
    groups: Sequence[Group], of_rows: Sequence[Tensor], of_keys: Sequence[Tensor]
) -> Iterator[tuple[int, Block, Tensor | None, Sequence[Tensor], Sequence[Tensor]]]:
    """What is computed at once: number of its part, its block, bias, views of what has rows and of what has keys."""
    batch, heads, length, _ = of_rows[0].shape
    most = ROWS if batch * length >= LONG else ROWS_OF_SHORT
    for group in groups:
        for number, part in enumerate(group.parts):
            for whole in part:
                band = whole.bias(of_rows[0])
                turns, few = at_once(whole, group.end - group.first, heads, length, most)
                for block, first in product(turns, range(0, heads, few)):
                    cut = slice(group.first, group.end), slice(first, first + few)
                    biases = group.biases(block, band, of_rows[0])
                    rows = zip(*(views(x[cut], block.row, block.rows, block) for x in of_rows), strict=True)
                    keys = zip(*(views(x[cut], block.key, block.keys, block) for x in of_keys), strict=True)
                    for bias, row_views, key_views in zip(biases, rows, keys, strict=True):
                        yield number, block, bias, row_views, key_views


def at_once(block: Block, sentences: int, heads: int, length: int, most: int) -> tuple[Iterable[Block], int]:
    """Repetitions and heads of a call: some repetitions in all heads, or all repetitions in some heads.

    The latter for classes: their calls are fewer, and the rows of one class, far apart, share pages with the others.
    """
    if block.spacing == 1:
        return block.turns(most), max(1, heads * most // block.rows)
    rows = block.rows * (sentences if by_repetition(sentences, block) else block.repeats)
    budget = heads * max(most, length // SHARE)
    return block.turns(max(budget, block.rows)), max(1, budget // rows)


def views(
    x: Float[Tensor, "batch heads length width"], first: int, length: int, block: Block
) -> list[Float[Tensor, "_ heads rows width"]]:
    """The positions of a block in all its repetitions, without a copy.

    A view has either all sentences and one repetition or one sentence and all repetitions, whichever makes fewer:
    the two have no stride in common.
    """
    if by_repetition(len(x), block):
        starts = [first + i * block.step for i in range(block.repeats)]
        return [x[:, :, s : s + (length - 1) * block.spacing + 1 : block.spacing] for s in starts]
    _, heads, position, last = x.stride()
    size = (block.repeats, x.shape[1], length, x.shape[3])
    strides = (block.step * position, heads, block.spacing * position, last)
    return [x.as_strided(size, strides, one.storage_offset() + first * position) for one in x]


def by_repetition(sentences: int, block: Block) -> bool:
    """Whether a view is one repetition in all sentences, and not all repetitions in one."""
    return sentences > block.repeats
