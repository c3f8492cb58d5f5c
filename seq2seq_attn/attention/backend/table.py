"""Softmax attention of scores of positions alone: one matrix for each head, whatever the sentences contain.

In a random synthesizer the matrix is the table that it learns. One matrix serves all sentences that hide the same keys,
without a copy for each: the values of all of them are the columns of one product. Weights are computed tile by tile and
once more for the gradient, so that none are held but those of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.nn.differentiable import differentiable_once
from seq2seq_attn.nn.masked import masked_softmax

# From as many positions on, on either side, this is faster than all pairs at once.
TABLE_FROM = 128
# Rows and weights of a tile for each thread: enough for fast products, few enough to stay in a core's cache and to
# leave out most of the pairs that causality hides. Measured on one CPU core, 8 heads of 64, 128 to 4096 positions.
ROWS, WEIGHTS = 128, 2**19


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where weights are no plain softmax, depend on contents or are few; on a GPU and in torch.compile."""
    score, memory = parts.score, request.memory
    if score.query_parts or score.key_parts or parts.dropout > 0 or parts.mix is not None:
        return None
    if not (parts.normalizer.is_softmax and parts.pattern.sees_all and memory.one_mask):
        return None
    if not (request.starts_at_zero and request.square) or min(request.target, request.source) < TABLE_FROM:
        return None
    if parts.relative is not None and parts.relative.adds_context:
        return None
    values = memory.values
    if parts.normalizer.sink_logits(values) is not None:
        return None
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return None
    if torch.compiler.is_compiling():  # a compiled program cannot group sentences by what their masks hide
        return None
    positions = request.positions()
    scores = parts.scores(request.prepared, memory.keys, positions, values.dtype)
    if len(scores) > 1 or score.visible(positions) is not None:  # they depend on the length of a sentence
        return None
    rows_match_keys = request.rows_match_keys
    return HeadOutput(TableAttention.apply(scores[0], values, memory.mask, request.triangular, rows_match_keys))


@final
class Group(NamedTuple):
    """Sentences that hide the same keys.

    Attributes:
        sentences: their numbers in the batch.
        rows, keys: one past the last row that is no padding, and past the last key that is not hidden.
        visible: which of the keys are not hidden; None: all.
        values: those of the keys, of all sentences side by side.
    """

    sentences: list[int] | slice
    rows: int
    keys: int
    visible: Bool[Tensor, " keys"] | None
    values: Float[Tensor, "heads keys columns"]

    def covers(self, scores: Float[Tensor, "heads target source"]) -> bool:
        """Return whether these sentences read every score."""
        return scores.shape[1:] == (self.rows, self.keys)

    def columns(self, x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "heads length columns"]:
        """Return what a tensor has of these sentences, side by side."""
        return side_by_side(x[self.sentences])

    def put(self, columns: Float[Tensor, "heads length columns"], into: Tensor) -> None:
        """Write columns to the sentences of a tensor, from the first position on."""
        heads = columns.unflatten(2, (-1, into.shape[3])).permute(2, 0, 1, 3)
        into[self.sentences, :, : columns.shape[1]] = heads


@final
class TableAttention(torch.autograd.Function):
    """softmax(scores) values, where each sentence hides keys of its own, and each row the later keys if `causal`.

    If `rows_match_keys`, a row past the last key that a sentence does not hide is padding, and 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Float[Tensor, "heads target source"],
        values: Float[Tensor, "batch heads source width"],
        mask: Bool[Tensor, "batch source"] | None,
        causal: bool,
        rows_match_keys: bool,
    ) -> Float[Tensor, "batch heads target width"]:
        ctx.groups, ctx.causal = list(groups(values, mask, len(scores[0]), rows_match_keys)), causal
        context = values.new_zeros(*values.shape[:2], scores.shape[1], values.shape[3])
        for group in ctx.groups:
            columns = group.values.new_empty(len(scores), group.rows, group.values.shape[2])
            for heads, rows, keys in tiles(scores, group, causal):
                torch.bmm(
                    weigh(scores, group, heads, rows, keys, causal), group.values[heads, keys], out=columns[heads, rows]
                )
            group.put(columns, context)
        ctx.save_for_backward(scores, context)
        return context

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        scores, context = ctx.saved_tensors
        covered = not ctx.causal and len(ctx.groups) == 1 and ctx.groups[0].covers(scores)
        scores_grad = None
        if ctx.needs_input_grad[0]:
            scores_grad = torch.empty_like(scores) if covered else torch.zeros_like(scores)
        values_grad = context.new_zeros(*context.shape[:2], scores.shape[2], context.shape[3])
        for group in ctx.groups:
            columns, grad = group.columns(upstream), torch.zeros_like(group.values)
            shared = (columns * group.columns(context)).sum(-1, keepdim=True).neg_()
            for heads, rows, keys in tiles(scores, group, ctx.causal):
                weights = weigh(scores, group, heads, rows, keys, ctx.causal)
                grad[heads, keys].baddbmm_(weights.mT, columns[heads, rows])
                if scores_grad is not None:
                    slope = torch.baddbmm(shared[heads, rows], columns[heads, rows], group.values[heads, keys].mT)
                    if covered:
                        torch.mul(weights, slope, out=scores_grad[heads, rows, keys])
                    else:
                        scores_grad[heads, rows, keys].addcmul_(weights, slope)
            group.put(grad, values_grad)
        return scores_grad, values_grad, None, None, None


def groups(
    values: Float[Tensor, "batch heads source width"],
    mask: Bool[Tensor, "batch source"] | None,
    target: int,
    rows_match_keys: bool,
) -> Iterator[Group]:
    """Yield the sentences that see any key, in groups of one mask."""
    by_mask: dict[bytes, list[int]] = {}
    for sentence in range(len(values)):
        by_mask.setdefault(b"" if mask is None else mask[sentence].numpy().tobytes(), []).append(sentence)
    for sentences in by_mask.values():
        visible = None if mask is None else mask[sentences[0]]
        keys = values.shape[2] if visible is None else int(visible.nonzero().amax()) + 1 if visible.any() else 0
        if keys > 0:
            visible = None if visible is None or visible[:keys].all() else visible[:keys]
            rows = keys if rows_match_keys else target
            chosen = slice(None) if len(by_mask) == 1 else sentences
            yield Group(chosen, rows, keys, visible, side_by_side(values[chosen, :, :keys]))


def side_by_side(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "heads length columns"]:
    return x.permute(1, 2, 0, 3).flatten(2)


def tiles(
    scores: Float[Tensor, "heads target source"], group: Group, causal: bool
) -> Iterator[tuple[slice, slice, slice]]:
    """Yield heads, rows and keys of each tile; a causal one has the keys up to its last row."""
    threads = torch.get_num_threads()
    height = max(1, min(group.rows, WEIGHTS * threads // group.keys))
    if causal:
        height = min(height, ROWS * threads)
    # Several heads of some rows are no contiguous part of the scores, and the softmax would copy them.
    whole = causal or height == group.rows
    num_heads = max(1, WEIGHTS * threads // (height * group.keys)) if whole else 1
    for head in range(0, len(scores), num_heads):
        for row in range(0, group.rows, height):
            end = min(row + height, group.rows)
            yield slice(head, head + num_heads), slice(row, end), slice(min(end, group.keys) if causal else group.keys)


def weigh(
    scores: Float[Tensor, "heads target source"], group: Group, heads: slice, rows: slice, keys: slice, causal: bool
) -> Float[Tensor, "_ rows keys"]:
    """Return the weights of a tile."""
    tile = scores[heads, rows, keys]
    if not causal:
        return masked_softmax(tile, group.visible)
    positions = torch.arange(max(rows.stop, keys.stop))
    if group.visible is not None:
        return masked_softmax(tile, group.visible[keys] & (positions[keys] <= positions[rows, None]))
    last = slice(rows.start, keys.stop)  # the keys before are hidden from no row
    tile = tile.clone()
    tile[:, :, last].masked_fill_(positions[last] > positions[rows, None], -math.inf)
    return tile.softmax(-1)
