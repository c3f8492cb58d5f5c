"""Softmax attention in blocks, each by the CPU's flash kernel, combined exactly through their log-sum-exps.

Dao et al. 2022, arXiv:2205.14135, combine the tiles of a row in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.block import HIDDEN, Block
from seq2seq_attn.nn.differentiable import differentiable_once

# Rows computed at once: few enough to stay in a core's cache; a short sequence has many blocks of few rows, and twice
# as many rows at once halve its calls. Measured on two CPU cores, 8 heads of 64, k = 32 and 64: 256 rows instead of 128
# gain a sixth or more at 2048 positions and lose a sixth at 4096 and 8192.
ROWS, ROWS_OF_SHORT, LONG = 128, 256, 4096
SHARE = 16  # a call for residue classes takes at most a 16th of all rows


@final
class SentenceGroup(NamedTuple):
    """Sentences `first .. end` of a batch that are cut into the same blocks.

    Attributes:
        block_groups: they hold each allowed pair once; within a group a row is in at most one block.
        keys: number of keys of each sentence, where the blocks hold more; the rest are hidden.
        rows: number of rows of each sentence, where the blocks hold more; the rest are 0.
    """

    first: int
    end: int
    block_groups: Sequence[Sequence[Block]]
    keys: list[int] | None = None
    rows: list[int] | None = None

    def biases(
        self, block: Block, band: Float[Tensor, "rows keys"] | None, like: Float[Tensor, "..."]
    ) -> Sequence[Tensor | None]:
        """Return what each view of the block adds to its scores: its band, and HIDDEN past the last key."""
        sentences = self.end - self.first
        if self.keys is None or block.last_key < min(self.keys):
            return [band] * min(sentences, block.repeats)
        lengths = torch.tensor(self.keys, device=like.device)[:, None, None]
        missing = block.key_positions(like.device) >= lengths  # (sentences, repeats, keys)
        dtype = torch.promote_types(like.dtype, torch.float32)
        bias = torch.zeros(missing.shape, dtype=dtype, device=like.device).masked_fill_(missing, HIDDEN)
        by_view = [x[:, None, None] for x in bias.unbind(1 if by_repetition(sentences, block) else 0)]
        return by_view if band is None else [x + band for x in by_view]

    def blind(self, total: Float[Tensor, "sentences heads rows 1"]) -> Bool[Tensor, "sentences heads rows 1"]:
        """Return the rows that see no key or are padding."""
        seen = total > HIDDEN / 2
        if self.rows is not None:
            positions = torch.arange(total.shape[2], device=total.device)[:, None]
            seen = seen & (positions < torch.tensor(self.rows, device=total.device)[:, None, None, None])
        return ~seen


@final
class BlockAttention(torch.autograd.Function):
    """softmax(query keys^T) values over the pairs of the blocks; a row in none of them is 0.

    The weight of a pair is exp(score - log-sum-exp of its whole row). So the backward of each block, given the output
    and log-sum-exp of whole rows, returns the exact gradient of its pairs.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, groups: Sequence[SentenceGroup]) -> Tensor:
        context = torch.zeros_like(query)
        wide = torch.promote_types(query.dtype, torch.float32)
        total = torch.full((*query.shape[:3], 1), HIDDEN, dtype=wide, device=query.device)
        row_tensors, key_tensors = (query, context, total), (keys, values)
        for number, block, bias, (q, out, lse), (k, v) in tiles(groups, row_tensors, key_tensors):
            more, more_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, is_causal=block.causal, attn_mask=bias, scale=1.0
            )
            if number == 0:
                out.copy_(more)
                lse.copy_(more_lse.unsqueeze(-1))
            else:
                combine(out, lse, more, more_lse.unsqueeze(-1))
            del more, more_lse  # before the next are made: at most one tile is held
        for group in groups:
            if group.keys is not None or group.rows is not None:
                whole = slice(group.first, group.end)
                blind = group.blind(total[whole])
                context[whole].masked_fill_(blind, 0.0)
                total[whole].masked_fill_(blind, -HIDDEN)  # so that their pairs weigh exp(score + HIDDEN) = 0
        ctx.save_for_backward(query, keys, values, context, total)
        ctx.groups = groups
        return context

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, context, total = ctx.saved_tensors
        upstream = row_contiguous(upstream)
        query_grad, keys_grad, values_grad = empty_gradients(ctx.groups, query, keys, values)
        row_tensors = (query, context, total, upstream, query_grad)
        key_tensors = (keys, values, keys_grad, values_grad)
        for number, block, bias, (q, out, lse, up, q_grad), (k, v, k_grad, v_grad) in tiles(
            ctx.groups, row_tensors, key_tensors
        ):
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                up, q, k, v, out, lse.squeeze(-1), 0.0, block.causal, attn_mask=bias, scale=1.0
            )
            if number == 0:
                q_grad.copy_(gradients[0])
            else:
                q_grad.add_(gradients[0])
            if number == 0 and block.spacing > 1:  # classes have no key in common
                k_grad.copy_(gradients[1])
                v_grad.copy_(gradients[2])
            else:
                add_windows(k_grad, gradients[1], block)
                add_windows(v_grad, gradients[2], block)
            del gradients
        return query_grad, keys_grad, values_grad, None


def row_contiguous(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch heads length width"]:
    """Return `x` with the numbers of a row side by side in memory, which an expanded tensor has not."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


def empty_gradients(groups: Sequence[SentenceGroup], query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """Return tensors to write gradients into: zeros where gradients are added or a row or key is in no block."""
    rows, columns = query.shape[2], keys.shape[2]
    whole = len(groups) > 0
    classes = True
    for group in groups:
        first = group.block_groups[0] if group.block_groups else ()
        whole &= sum(block.rows * block.repeats for block in first) == rows
        classes &= sum(block.keys * block.repeats for block in first if block.spacing > 1) == columns
    query_grad = torch.empty_like(query) if whole else torch.zeros_like(query)
    make = torch.empty_like if classes else torch.zeros_like
    return query_grad, make(keys), make(values)


def combine(
    out: Float[Tensor, "repeats heads rows width"],
    lse: Float[Tensor, "repeats heads rows 1"],
    more: Float[Tensor, "repeats heads rows width"],
    more_lse: Float[Tensor, "repeats heads rows 1"],
) -> None:
    """Update `out` and `lse` of rows in place with those of further keys."""
    total = torch.logaddexp(lse, more_lse)
    out.mul_((lse - total).exp_()).add_(more.mul_((more_lse - total).exp_()))
    lse.copy_(total)


def add_windows(
    total: Float[Tensor, "repeats heads keys width"], gradient: Float[Tensor, "repeats heads keys width"], block: Block
) -> None:
    """Add the gradient of each window to that of the sequence; overlapping windows are added one after another."""
    overlapping = block.repeats > 1 and block.spacing == 1
    width = block.step if overlapping else block.keys
    for start in range(0, block.keys, width):
        total[:, :, start : start + width].add_(gradient[:, :, start : start + width])


def tiles(
    groups: Sequence[SentenceGroup], row_tensors: Sequence[Tensor], key_tensors: Sequence[Tensor]
) -> Iterator[tuple[int, Block, Tensor | None, Sequence[Tensor], Sequence[Tensor]]]:
    """Yield what is computed at once: number of the block group, block, bias, views of the row and the key tensors."""
    batch, heads, length, _ = row_tensors[0].shape
    most = ROWS if batch * length >= LONG else ROWS_OF_SHORT
    for group in groups:
        for number, blocks in enumerate(group.block_groups):
            for whole in blocks:
                band = whole.bias(row_tensors[0])
                repetitions, few = at_once(whole, group.end - group.first, heads, length, most)
                for block, first in product(repetitions, range(0, heads, few)):
                    cut = slice(group.first, group.end), slice(first, first + few)
                    biases = group.biases(block, band, row_tensors[0])
                    rows = zip(*(views(x[cut], block.row, block.rows, block) for x in row_tensors), strict=True)
                    keys = zip(*(views(x[cut], block.key, block.keys, block) for x in key_tensors), strict=True)
                    for bias, row_views, key_views in zip(biases, rows, keys, strict=True):
                        yield number, block, bias, row_views, key_views


def at_once(block: Block, sentences: int, heads: int, length: int, most: int) -> tuple[Iterable[Block], int]:
    """Return the repetitions and the number of heads of a call: some repetitions of all heads, or the reverse.

    All repetitions of some heads suit residue classes, whose rows are far apart and share pages of memory.
    """
    if block.spacing == 1:
        return block.repetitions(most), max(1, heads * most // block.rows)
    rows = block.rows * (sentences if by_repetition(sentences, block) else block.repeats)
    budget = heads * max(most, length // SHARE)
    return block.repetitions(max(budget, block.rows)), max(1, budget // rows)


def views(
    x: Float[Tensor, "batch heads length width"], first: int, length: int, block: Block
) -> list[Float[Tensor, "_ heads rows width"]]:
    """Return views of the positions of a block in all its repetitions, without a copy.

    A view has either all sentences and one repetition or one sentence and all repetitions, whichever makes fewer
    views: the two have no stride in common.
    """
    if by_repetition(len(x), block):
        starts = [first + i * block.step for i in range(block.repeats)]
        return [x[:, :, s : s + (length - 1) * block.spacing + 1 : block.spacing] for s in starts]
    _, heads, position, last = x.stride()
    size = (block.repeats, x.shape[1], length, x.shape[3])
    strides = (block.step * position, heads, block.spacing * position, last)
    return [x.as_strided(size, strides, one.storage_offset() + first * position) for one in x]


def by_repetition(sentences: int, block: Block) -> bool:
    """Return whether a view is one repetition of all sentences, rather than all repetitions of one."""
    return sentences > block.repeats
