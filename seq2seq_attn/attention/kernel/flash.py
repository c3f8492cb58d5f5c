"""Softmax attention in blocks, each by the CPU's flash kernel, joined exactly through their log-sum-exps.

Dao et al. 2022, arXiv:2205.14135, join the tiles of a row in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2seq_attn.attention.kernel.block import HIDDEN, Block

# Rows computed at once, a sixteenth of all between these: their windows are several times as large, and are to stay a
# small part of the memory. Measured on two busy cores, 8 heads of 64: 128 to 2048 rows differ little in time.
FEWEST_ROWS, MOST_ROWS = 128, 256


@final
class Group(NamedTuple):
    """Sentences `first .. end` of a batch that are cut alike: parts that together hold each pair once."""

    first: int
    end: int
    parts: Sequence[Sequence[Block]]


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
        for number, block, (q, out, lse), (k, v) in pieces(groups, (query, context, total), (keys, values)):
            more, more_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, is_causal=block.causal, attn_mask=block.bias(q), scale=1.0
            )
            if number == 0:
                out.copy_(more)
                lse.copy_(more_lse.unsqueeze(-1))
            else:
                join(out, lse, more, more_lse.unsqueeze(-1))
            del more, more_lse  # before the next are made: at most one piece is held
        ctx.save_for_backward(query, keys, values, context, total)
        ctx.groups = groups
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, context, total = ctx.saved_tensors
        upstream = in_rows(upstream)
        of_query, of_keys, of_values = (torch.zeros_like(x) for x in (query, keys, values))
        of_rows = (query, context, total, upstream, of_query)
        of_columns = (keys, values, of_keys, of_values)
        for _, block, (q, out, lse, up, to_q), (k, v, to_k, to_v) in pieces(ctx.groups, of_rows, of_columns):
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                up, q, k, v, out, lse.squeeze(-1), 0.0, block.causal, attn_mask=block.bias(q), scale=1.0
            )
            to_q.add_(found[0])
            add_windows(to_k, found[1], block)
            add_windows(to_v, found[2], block)
            del found
        return of_query, of_keys, of_values, None


def in_rows(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch heads length width"]:
    """Rows in memory, as a product of matrices reads them: an expanded tensor has none."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


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
    to: Float[Tensor, "repeats heads keys width"],
    found: Float[Tensor, "repeats heads keys width"],
    block: Block,
) -> None:
    """Add what each window found to the sequence; windows that overlap take turns."""
    overlapping = block.repeats > 1 and block.spacing == 1
    turn = block.step if overlapping else block.keys
    for start in range(0, block.keys, turn):
        to[:, :, start : start + turn].add_(found[:, :, start : start + turn])


def pieces(
    groups: Sequence[Group], of_rows: Sequence[Tensor], of_keys: Sequence[Tensor]
) -> Iterator[tuple[int, Block, Sequence[Tensor], Sequence[Tensor]]]:
    """What is computed at once: number of its part, its block, views of what has rows and of what has keys."""
    batch, _, length, _ = of_rows[0].shape
    most = min(MOST_ROWS, max(FEWEST_ROWS, batch * length // 16))
    for group in groups:
        sentences = slice(group.first, group.end)
        for number, part in enumerate(group.parts):
            for block in (turn for whole in part for turn in whole.turns(most)):
                rows = zip(*(views(x[sentences], block.row, block.rows, block) for x in of_rows), strict=True)
                keys = zip(*(views(x[sentences], block.key, block.keys, block) for x in of_keys), strict=True)
                for row_views, key_views in zip(rows, keys, strict=True):
                    yield number, block, row_views, key_views


def views(
    x: Float[Tensor, "batch heads length width"], first: int, length: int, block: Block
) -> list[Float[Tensor, "_ heads rows width"]]:
    """The places of a block in all its repetitions, without a copy.

    A view has either all sentences and one repetition or one sentence and all repetitions, whichever makes fewer:
    the two have no stride in common.
    """
    if len(x) > block.repeats:
        starts = [first + i * block.step for i in range(block.repeats)]
        return [x[:, :, s : s + (length - 1) * block.spacing + 1 : block.spacing] for s in starts]
    _, heads, place, last = x.stride()
    size = (block.repeats, x.shape[1], length, x.shape[3])
    strides = (block.step * place, heads, block.spacing * place, last)
    return [x.as_strided(size, strides, one.storage_offset() + first * place) for one in x]
