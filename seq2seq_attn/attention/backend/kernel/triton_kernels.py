# ruff: noqa: N803, SIM108 -- constants of a kernel are in capitals, and a condition of its own chooses what is compiled
"""Kernels in Triton, https://triton-lang.org: softmax attention of tiles of few rows, forward and backward.

Dao 2023, arXiv:2307.08691 (FlashAttention-2), for the keys of a tile in place of all keys.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

COLUMNS = tl.constexpr(12)  # of the table of tiles: tile_list.Tile


@triton.jit
@no_type_check
def vectors_at(
    start, positions, exists, of_position, of_number, width: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Return the vectors at these positions of one head, filled up with zeros.

    Args:
        start: address of the head's first number.
        exists: which of the positions there are.
        of_position, of_number: strides from one position, and from one number, to the next.
    """
    numbers = tl.arange(0, WIDTH)
    addresses = start + positions.to(tl.int64)[:, None] * of_position + numbers[None, :] * of_number
    return tl.load(addresses, mask=exists[:, None] & (numbers < width)[None, :], other=0.0)


@triton.jit
@no_type_check
def seen_scores(
    q, rows, row_exists, j, tile, keys_start, of_position, of_number, listed, pairs, mask_start,
    width: tl.constexpr, WIDTH: tl.constexpr, LISTED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return the positions of some keys, the keys, the scores, and which pairs are seen."""
    key, count, spacing = tl.load(tile + 1), tl.load(tile + 3), tl.load(tile + 4)
    before, after, exclude = tl.load(tile + 5), tl.load(tile + 6), tl.load(tile + 7)
    exists = j < count
    if LISTED:
        positions = tl.load(listed + tl.load(tile + 9) + j, mask=exists, other=0)
    else:
        positions = key + spacing * j
    k = vectors_at(keys_start, positions, exists, of_position, of_number, width, WIDTH)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    distance = positions[None, :] - rows[:, None]
    seen = row_exists[:, None] & exists[None, :] & (distance >= -before) & (distance <= after)
    seen = seen & ((distance != 0) | (exclude == 0))
    if LISTED:
        i = tl.arange(0, rows.shape[0])
        index = tl.load(tile + 10) + i[:, None] * tl.load(tile + 11) + j[None, :]
        seen = seen & (tl.load(pairs + index, mask=row_exists[:, None] & exists[None, :], other=0) != 0)
    if MASKED:
        seen = seen & (tl.load(mask_start + positions, mask=exists, other=0) != 0)[None, :]
    return positions, k, scores, seen


@triton.jit
@no_type_check
def forward_kernel(
    query, keys, values, context, log_sum_exp, tiles, listed, pairs, mask,
    heads, members, target, mask_batch,
    q_batch, q_head, q_position, q_width,
    k_batch, k_head, k_position, k_width,
    v_batch, v_head, v_position, v_width,
    group_context, group_log_sum_exp,
    width: tl.constexpr, value_width: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, LISTED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Write the context and the log-sum-exp of the rows of a tile, for one head of one sentence."""
    tile = tiles + tl.program_id(0) * COLUMNS
    sentence, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row, count, spacing, group = tl.load(tile), tl.load(tile + 2), tl.load(tile + 4), tl.load(tile + 8)
    key_count = tl.load(tile + 3)
    i, value_numbers = tl.arange(0, ROWS), tl.arange(0, VALUE_WIDTH)
    rows, row_exists = row + spacing * i, i < count
    query_start = query + sentence.to(tl.int64) * q_batch + head.to(tl.int64) * q_head
    q = vectors_at(query_start, rows, row_exists, q_position, q_width, width, WIDTH)
    keys_start = keys + sentence.to(tl.int64) * k_batch + (head // members).to(tl.int64) * k_head
    values_start = values + sentence.to(tl.int64) * v_batch + (head // members).to(tl.int64) * v_head
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    sum_of_weights = tl.zeros((ROWS,), tl.float32)
    sum_of_values = tl.zeros((ROWS, VALUE_WIDTH), tl.float32)
    for start in range(0, key_count, KEYS):
        j = start + tl.arange(0, KEYS)
        positions, _, scores, seen = seen_scores(
            q, rows, row_exists, j, tile, keys_start, k_position, k_width, listed, pairs,
            mask + sentence * mask_batch, width, WIDTH, LISTED, MASKED,
        )  # fmt: skip
        scores = tl.where(seen, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        finite = tl.where(larger == float("-inf"), 0.0, larger)  # of a row that has seen nothing yet
        weights, kept = tl.exp(scores - finite[:, None]), tl.exp(largest - finite)
        v = vectors_at(values_start, positions, j < key_count, v_position, v_width, value_width, VALUE_WIDTH)
        sum_of_weights = sum_of_weights * kept + tl.sum(weights, 1)
        sum_of_values = sum_of_values * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = larger
    sees_some = sum_of_weights > 0
    row_context = sum_of_values / tl.where(sees_some, sum_of_weights, 1.0)[:, None]
    row_log_sum_exp = tl.where(sees_some, largest + tl.log(tl.where(sees_some, sum_of_weights, 1.0)), float("-inf"))
    at = (sentence.to(tl.int64) * heads + head) * target + rows
    tl.store(log_sum_exp + group.to(tl.int64) * group_log_sum_exp + at, row_log_sum_exp, mask=row_exists)
    tl.store(
        context + group.to(tl.int64) * group_context + at[:, None] * value_width + value_numbers[None, :],
        row_context.to(context.dtype.element_ty), mask=row_exists[:, None] & (value_numbers < value_width)[None, :],
    )  # fmt: skip


@triton.jit
@no_type_check
def backward_kernel(
    query, keys, values, upstream, log_sum_exp, inner, query_grad, keys_grad, values_grad, tiles, listed, pairs, mask,
    heads, members, target, source, mask_batch,
    q_batch, q_head, q_position, q_width,
    k_batch, k_head, k_position, k_width,
    v_batch, v_head, v_position, v_width,
    width: tl.constexpr, value_width: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, LISTED: tl.constexpr, MASKED: tl.constexpr, ONE_GROUP: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a tile, for one head of one sentence; those of keys are sums over tiles."""
    tile = tiles + tl.program_id(0) * COLUMNS
    sentence, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row, count, spacing = tl.load(tile), tl.load(tile + 2), tl.load(tile + 4)
    key_count = tl.load(tile + 3)
    i, numbers, value_numbers = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, VALUE_WIDTH)
    rows, row_exists = row + spacing * i, i < count
    row_numbers = row_exists[:, None] & (numbers < width)[None, :]
    query_start = query + sentence.to(tl.int64) * q_batch + head.to(tl.int64) * q_head
    q = vectors_at(query_start, rows, row_exists, q_position, q_width, width, WIDTH)
    at = (sentence.to(tl.int64) * heads + head) * target + rows
    up = vectors_at(upstream, at, row_exists, value_width, 1, value_width, VALUE_WIDTH)
    row_log_sum_exp = tl.load(log_sum_exp + at, mask=row_exists, other=float("inf"))
    row_inner = tl.load(inner + at, mask=row_exists, other=0.0)
    key_head = sentence.to(tl.int64) * (heads // members) + head // members
    keys_start = keys + sentence.to(tl.int64) * k_batch + (head // members).to(tl.int64) * k_head
    values_start = values + sentence.to(tl.int64) * v_batch + (head // members).to(tl.int64) * v_head
    q_grad = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, key_count, KEYS):
        j = start + tl.arange(0, KEYS)
        positions, k, scores, seen = seen_scores(
            q, rows, row_exists, j, tile, keys_start, k_position, k_width, listed, pairs,
            mask + sentence * mask_batch, width, WIDTH, LISTED, MASKED,
        )  # fmt: skip
        weights = tl.exp(tl.where(seen, scores - row_log_sum_exp[:, None], float("-inf")))
        exists = j < key_count
        key_numbers = exists[:, None] & (numbers < width)[None, :]
        value_exists = exists[:, None] & (value_numbers < value_width)[None, :]
        v = vectors_at(values_start, positions, exists, v_position, v_width, value_width, VALUE_WIDTH)
        index = key_head * source + positions
        v_grad = tl.dot(tl.trans(weights.to(up.dtype)), up, input_precision="ieee")
        tl.atomic_add(
            values_grad + index[:, None] * value_width + value_numbers[None, :],
            v_grad,
            mask=value_exists,
            sem="relaxed",
        )
        score_grad = weights * (tl.dot(up, tl.trans(v), input_precision="ieee") - row_inner[:, None])
        score_grad = score_grad.to(k.dtype)
        k_grad = tl.dot(tl.trans(score_grad), q, input_precision="ieee")
        tl.atomic_add(keys_grad + index[:, None] * width + numbers[None, :], k_grad, mask=key_numbers, sem="relaxed")
        q_grad += tl.dot(score_grad, k, input_precision="ieee")
    q_grad_start = query_grad + at[:, None] * width + numbers[None, :]
    if ONE_GROUP:  # and so in one tile
        tl.store(q_grad_start, q_grad, mask=row_numbers)
    else:
        tl.atomic_add(q_grad_start, q_grad, mask=row_numbers, sem="relaxed")
