"""Blocks of keys instead of all pairs: the same numbers as a dense float64 softmax, of no more pairs than are seen."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.backend.kernel import flash
from seq2seq_attn.attention.backend.kernel.block_product import block_product, runs
from seq2seq_attn.attention.backend.kernel.flash import SentenceGroup, tiles
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

KINDS = [LocalPattern, AtrousPattern, SparsePattern]
kinds = pytest.mark.parametrize("kind", KINDS)
# Output, and gradients with respect to standard-normal inputs. Dense attention of the same precision misses these
# where one key gathers the gradients of a thousand rows: there its own error counts, so many times.
DENSE_TIMES = 2
TOLERANCES = {torch.float64: (1e-12, 1e-12), torch.float32: (2e-6, 5e-6), torch.bfloat16: (3e-2, 3e-2)}


def allowed_pairs(pattern: Pattern, target: int, source: int, causal: bool, lengths: list[int]) -> Tensor:
    """What the definition allows, (batch, 1, target, source)."""
    rows, keys = torch.arange(target), torch.arange(source)
    allowed = pattern.allowed(rows[None], keys)[None]
    if causal:
        allowed = allowed & (keys <= rows[:, None])
    return allowed & (keys < torch.tensor(lengths)[:, None, None, None])


def dense(query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    scores = (query @ keys.mT).masked_fill(~allowed, torch.finfo(query.dtype).min)
    return scores.softmax(-1).masked_fill(~allowed, 0.0) @ values


def inputs(batch: int, heads: int, target: int, source: int, width: int, value_width: int, apart: bool) -> list[Tensor]:
    """Query, keys and values: heads before positions in memory, or positions before heads, in rows with gaps."""
    found = []
    for length, of in ((target, width), (source, width), (source, value_width)):
        x = torch.randn(batch, length, heads, of + 3) if apart else torch.randn(batch, heads, length, of)
        found.append(x[..., 3:].transpose(1, 2) if apart else x)
    return found


def scaled(query: Tensor) -> Tensor:
    """By about 1 / sqrt(width), and a power of two, so that no number is rounded."""
    return query * 2.0 ** -round(math.log2(query.shape[-1]) / 2)


def distance(one: Tensor, other: Tensor) -> float:
    return (one.detach().double() - other.detach().double()).abs().max().item()


def check(
    pattern: Any,
    tensors: list[Tensor],
    lengths: list[int] | None,
    causal: bool,
    dtype: torch.dtype,
    rows_match_keys: bool = False,
) -> None:
    given_ones, usual = ([x.to(dtype).requires_grad_() for x in tensors] for _ in range(2))
    exact = [x.detach().double().requires_grad_() for x in given_ones]
    batch, target, source = len(tensors[0]), tensors[0].shape[2], tensors[1].shape[2]
    mask = None if lengths is None else torch.arange(source) < torch.tensor(lengths)[:, None]
    allowed = allowed_pairs(pattern, target, source, causal, lengths or [source] * batch)
    if rows_match_keys and mask is not None:
        allowed = allowed & mask[:, None, :, None]
    found = block_product(
        scaled(given_ones[0]), *given_ones[1:], mask, causal, pattern.block_groups, rows_match_keys=rows_match_keys
    )
    expected = dense(scaled(exact[0]), *exact[1:], allowed)
    assert found is not None
    assert found.dtype == dtype
    assert (found[~allowed.any(-1).expand(found.shape[:3])] == 0).all()
    output, gradient = TOLERANCES[dtype]
    assert distance(found, expected) <= output
    upstream = torch.randn_like(expected).to(dtype)
    in_one = F.scaled_dot_product_attention(scaled(usual[0]), *usual[1:], attn_mask=allowed, scale=1.0)
    ours = torch.autograd.grad(found, given_ones, upstream)
    denses = torch.autograd.grad(in_one, usual, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream.double())
    for one, by_dense, other in zip(ours, denses, theirs, strict=True):
        assert distance(one, other) <= gradient * max(1.0, float(other.abs().max()))
        assert distance(one, other) <= max(gradient, DENSE_TIMES * distance(by_dense, other))


def drawn(data: Any, longest: int) -> None:
    draw = data.draw
    pattern = draw(st.sampled_from(KINDS))(k=draw(st.integers(1, longest + 10)), length_ratio=1.0)
    causal, ragged = draw(st.booleans()), draw(st.booleans())
    source = draw(st.integers(1, longest))
    target = source if causal else draw(st.integers(1, longest))
    batch, heads = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5]))
    lengths = draw(st.lists(st.integers(0, source), min_size=batch, max_size=batch)) if ragged else None
    width, value_width = draw(st.sampled_from([(7, 7), (3, 5), (8, 2), (64, 64)]))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    tensors = inputs(batch, heads, target, source, width, value_width, draw(st.booleans()))
    rows_match_keys = target == source and draw(st.booleans())
    check(pattern, tensors, lengths, causal, draw(st.sampled_from([torch.float32, torch.float64])), rows_match_keys)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_blocks_equal_a_dense_float64_softmax(data: Any) -> None:
    drawn(data, longest=120)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_blocks_of_long_sequences_equal_a_dense_float64_softmax(data: Any) -> None:
    drawn(data, longest=1200)


# Each pair of k, dtype and causal; the rest of the crossings is slow.
TILED = [
    pytest.param(k, causal, dtype, marks=[] if (i + j + causal) % 2 else pytest.mark.slow)
    for i, k in enumerate((2, 5, 32, 67))
    for j, dtype in enumerate(TOLERANCES)
    for causal in (False, True)
]


@pytest.mark.parametrize(("k", "causal", "dtype"), TILED)
@kinds
def test_tiles_in_the_middle_and_at_both_ends_equal_a_dense_softmax(
    kind: Any, k: int, causal: bool, dtype: torch.dtype
) -> None:
    check(kind(k=k, length_ratio=1.0), inputs(1, 2, 301, 301, 16, 16, apart=True), None, causal, dtype)


@pytest.mark.parametrize("causal", [False, True])
@kinds
def test_a_batch_of_whole_padded_tiles_and_an_empty_sentence_equals_a_dense_softmax(kind: Any, causal: bool) -> None:
    tensors = inputs(4, 2, 211, 211, 5, 5, apart=False)
    check(kind(k=7, length_ratio=1.0), tensors, [211, 3, 0, 97], causal, torch.float64)


@pytest.mark.parametrize("rows_match_keys", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[149, 131, 140], [139, 149, 128, 137, 120, 149, 0, 11, 2]], ids=["few", "many"])
@kinds
def test_neighbours_of_about_one_length_that_go_together_equal_a_dense_softmax(
    kind: Any, lengths: list[int], causal: bool, rows_match_keys: bool
) -> None:
    tensors = inputs(len(lengths), 2, 149, 149, 5, 5, apart=True)
    check(kind(k=7, length_ratio=1.0), tensors, lengths, causal, torch.float64, rows_match_keys)


def test_sentences_go_together_while_their_padding_costs_less_than_another_call() -> None:
    """At most 32 positions of padding for each sentence but the first."""
    assert list(runs([91, 100, 69])) == [(0, 3)]
    assert list(runs([91, 100, 69, 36, 35, 64, 64])) == [(0, 3), (3, 7)]
    assert list(runs([100, 67, 100])) == [(0, 1), (1, 2), (2, 3)]
    assert list(runs([7])) == [(0, 1)]
    assert list(runs([])) == []


@pytest.mark.parametrize("kind", [AtrousPattern, SparsePattern])
def test_what_is_computed_at_once_is_a_small_part_of_the_whole(kind: Any) -> None:
    """k = 3: a class of 1366 rows would be a third."""
    query = torch.zeros(1, 8, 4096, 2)
    groups = [SentenceGroup(0, 1, kind(k=3, length_ratio=1.0).block_groups(4096, 4096, True))]
    at_once = [rows[0].numel() for *_, rows, _ in tiles(groups, [query], [query])]
    assert max(at_once) <= query.numel() / 16


@kinds
def test_more_sentences_than_tiles_equal_a_dense_softmax(kind: Any) -> None:
    check(kind(k=3, length_ratio=1.0), inputs(11, 2, 163, 163, 5, 5, apart=True), None, False, torch.float64)


@kinds
def test_a_sentence_alone_and_one_in_turns_of_few_rows_are_the_same(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "ROWS", 1)
    monkeypatch.setattr(flash, "ROWS_OF_SHORT", 1)
    check(kind(k=5, length_ratio=1.0), inputs(2, 3, 201, 201, 7, 7, apart=True), None, True, torch.float64)


@kinds
def test_tensors_whose_rows_are_not_rows_in_memory_are_read_as_those_that_are(kind: Any) -> None:
    """Such as keys kept as columns, or values that are the same for all heads."""
    query, keys, values = inputs(2, 3, 70, 70, 5, 5, apart=False)
    keys, values = keys.mT.contiguous().mT, values[:, :1].expand(-1, 3, -1, -1)
    check(kind(k=4, length_ratio=1.0), [query.mT.contiguous().mT, keys, values], None, False, torch.float64)


@kinds
def test_an_expanded_gradient_is_read_as_a_whole_one(kind: Any) -> None:
    query, keys, values = (x.double().requires_grad_() for x in inputs(2, 3, 70, 70, 5, 5, apart=False))
    found = block_product(
        query, keys, values, None, False, kind(k=4, length_ratio=1.0).block_groups, rows_match_keys=False
    )
    assert found is not None
    ours = torch.autograd.grad(found.sum(), (query, keys, values), retain_graph=True)
    theirs = torch.autograd.grad(found, (query, keys, values), torch.ones_like(found))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


@kinds
def test_rows_of_padding_are_left_out_where_a_sequence_attends_to_itself(kind: Any) -> None:
    pattern, lengths = kind(k=4, length_ratio=1.0), [90, 41]
    query, keys, values = (x.double() for x in inputs(2, 3, 90, 90, 5, 5, apart=False))
    mask = torch.arange(90) < torch.tensor(lengths)[:, None]
    found = block_product(query, keys, values, mask, False, pattern.block_groups, rows_match_keys=True)
    expected = dense(query, keys, values, allowed_pairs(pattern, 90, 90, False, lengths))
    assert found is not None
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1, :, :41], expected[1, :, :41], rtol=0, atol=1e-12)
    assert (found[1, :, 41:] == 0).all()


@kinds
def test_real_keys_behind_padding_are_declined(kind: Any) -> None:
    tensors = inputs(1, 1, 50, 50, 3, 3, apart=False)
    mask = torch.arange(50)[None] > 4
    assert block_product(*tensors, mask, False, kind(k=4, length_ratio=1.0).block_groups, rows_match_keys=False) is None


@kinds
def test_all_is_declined_in_a_compiled_program(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, groups = inputs(1, 1, 50, 50, 3, 3, apart=False), kind(k=4, length_ratio=1.0).block_groups
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for mask in (None, torch.arange(50)[None] < 41):
        assert block_product(*tensors, mask, False, groups, rows_match_keys=False) is None


@pytest.mark.parametrize("k", [1, 2, 13, 40, 200])
@kinds
def test_blocks_hold_each_pair_that_is_seen_once_and_no_other(kind: Any, k: int) -> None:
    pattern, device = kind(k=k, length_ratio=1.0), torch.device("cpu")
    lengths = [(131, 131), (67, 131), (131, 67), (1, 5), (1, 1), (40, 2)]
    for (target, source), causal in product(lengths, (False, True)):
        case = f"{target} rows, {source} keys, causal={causal}"
        found = torch.zeros(target, source, dtype=torch.int64)
        for part in pattern.block_groups(target, source, causal):
            rows = torch.cat([block.row_positions(device).flatten() for block in part])
            assert len(rows) == len(rows.unique()), f"a row stands in two blocks of a part: {case}"
            for block in part:
                where = block.row_positions(device)[:, :, None], block.key_positions(device)[:, None]
                found.index_put_(where, block.seen(device).long(), accumulate=True)
        assert torch.equal(found, allowed_pairs(pattern, target, source, causal, [source])[0, 0].long()), case


@pytest.mark.parametrize(("kind", "pairs"), [(LocalPattern, 96), (AtrousPattern, 32), (SparsePattern, 126)])
def test_a_row_meets_its_tile_and_not_the_sentence(kind: Any, pairs: int) -> None:
    """n = 1024, k = 32: a window of 32 + 32 + 32 keys (30 + 32 + 30 + ... for sparse), and 1024 / 32 far ones."""
    parts = kind(k=32, length_ratio=1.0).block_groups(1024, 1024, False)
    met = sum(block.repeats * block.rows * block.keys for part in parts for block in part)
    assert met <= pairs * 1024


@pytest.mark.parametrize("most", [1, 9, 64, 10_000])
@kinds
def test_tiles_hold_the_pairs_of_their_block(kind: Any, most: int) -> None:
    for part in kind(k=5, length_ratio=1.0).block_groups(97, 97, True):
        for block in part:
            tiles = list(block.tiles(most))
            device = torch.device("cpu")
            assert all(tile.rows * tile.keys * tile.repeats <= max(most, tile.keys) for tile in tiles)
            rows = torch.cat([tile.row_positions(device).flatten() for tile in tiles])
            assert torch.equal(rows, block.row_positions(device).flatten())
            seen = torch.cat([tile.seen(device).flatten(0, 1) for tile in tiles])
            assert torch.equal(seen, block.seen(device).flatten(0, 1))
