"""Keys in the buckets of a query: sorted by bucket, they give the numbers of all pairs, and few others are scored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import check_equal, served_by
from attention.test_gathered_tiles import Largest
from configs import built, composed
from hypothesis import given
from hypothesis import strategies as st

from seq2seq_attn.attention.backend import buckets as buckets_module
from seq2seq_attn.attention.backend.kernel import bucket_product as kernel
from seq2seq_attn.attention.pattern.lsh import LshPattern, bucket

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH = 3, 13, 8
PADDING = torch.arange(N) < torch.tensor([[N], [8], [0]])
HOLES = torch.arange(B * N).view(B, N) % 4 != 1
MASKS = {"no mask": None, "padding": PADDING, "holes": HOLES}
both = pytest.mark.parametrize("causal", [False, True])


def attending(*overrides: str, relative: Any = None, at_once: bool = True) -> Any:
    """A layer that sorts by bucket from the shortest sentence on."""
    node = composed("attention=lsh", "attention.num_heads=2", *overrides).attention
    layer = built(node)(layer=0, relative=relative, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).eval()
    if at_once:
        layer.pattern.buckets_from = 1
    return layer


@pytest.fixture
def sorting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the sentences that were sorted, in tiles of three rows, a few tiles at once."""
    monkeypatch.setattr(kernel, "LEAST_ROWS", 3)
    monkeypatch.setattr(kernel, "MOST_ROWS", 3)
    monkeypatch.setattr(kernel, "MAX_PAIRS", 2 * 3 * 16)
    return served_by(buckets_module.attend, monkeypatch)


@both
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (8, 4), pytest.param(64, 2, marks=pytest.mark.slow)])
def test_self_attention_equals_its_formula(
    mask: str, causal: bool, count: int, rounds: int, sorting: list[int]
) -> None:
    layer = attending(f"attention.pattern.num_buckets={count}", f"attention.pattern.num_rounds={rounds}")
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    expected, _ = attend(layer, x, x, x, MASKS[mask], causal=causal, own=True)
    found = layer.attend_self(x, MASKS[mask], causal=causal).context
    assert sorting == [N]
    check_equal(found, expected, x, *layer.parameters())


@pytest.mark.parametrize("count", [2, 8, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("source", [7, 20])
def test_another_sequence_equals_its_formula(source: int, count: int, sorting: list[int]) -> None:
    layer = attending(f"attention.pattern.num_buckets={count}")
    query, keys = (torch.randn(B, length, WIDTH, requires_grad=True) for length in (N, source))
    mask = torch.arange(source) < torch.tensor([[source], [5], [0]])
    expected, _ = attend(layer, query, keys, keys, mask, causal=False)
    found = layer(query, layer.prepare(keys, mask=mask)).context
    assert sorting == [source]
    check_equal(found, expected, query, keys, *layer.parameters())


@pytest.mark.parametrize(
    "overrides",
    [
        ["attention.num_heads=4", "attention.num_kv_heads=2"],
        ["attention.head_dim=6"],  # keys wider than values would be, were these not projected
        ["attention.head_dim=6", "attention.project_values=false"],  # and narrower
        ["attention/gate=sigmoid", "attention.qkv_bias=true"],
    ],
    ids=str,
)
def test_other_parts_and_sizes_equal_all_pairs(overrides: list[str], sorting: list[int]) -> None:
    layer, x = attending(*overrides), torch.randn(B, N, WIDTH, requires_grad=True)
    for causal in (False, True):
        expected = layer.attend_self(x, PADDING, causal=causal, need_weights=True).context
        check_equal(layer.attend_self(x, PADDING, causal=causal).context, expected, x, *layer.parameters())
    assert sorting == [N, N]


def test_a_chunk_after_others_sees_their_keys(sorting: list[int]) -> None:
    layer, x = attending(), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, causal=True).context
    past = layer.attend_self(x[:, :6], causal=True)
    found = layer.attend_self(x[:, 6:], past=past.memory, causal=True).context
    assert sorting == [N, 6, N]
    torch.testing.assert_close(found, expected[:, 6:], rtol=0, atol=1e-12)


def test_rotary_positions_are_sorted_and_those_that_add_to_scores_are_not(sorting: list[int]) -> None:
    for position, lengths in (("rotary", [N]), ("alibi", []), ("relative", [])):
        sorting.clear()
        relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
        layer, x = attending(relative=relative), torch.randn(B, N, WIDTH)
        expected = layer.attend_self(x, PADDING, causal=True, need_weights=True).context
        found = layer.attend_self(x, PADDING, causal=True).context
        assert sorting == lengths
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "overrides",
    [
        ["attention/normalizer=sink"],
        ["attention/normalizer=sparsemax"],
        ["attention/mix=talking_heads"],
        ["attention/score=cosine"],
    ],
    ids=str,
)
def test_other_weights_are_those_of_all_pairs(overrides: list[str], sorting: list[int]) -> None:
    layer, x = attending(*overrides), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING, need_weights=True).context
    torch.testing.assert_close(layer.attend_self(x, PADDING).context, expected, rtol=0, atol=1e-12)
    assert sorting == ([N] if overrides == ["attention/score=cosine"] else [])


def test_a_mask_of_each_query_a_step_dropout_and_half_precision_see_all_pairs(sorting: list[int]) -> None:
    layer, x = attending("attention.dropout=0.1"), torch.randn(B, N, WIDTH)
    by_query = torch.rand(B, N, N) > 0.3
    expected = layer.attend_self(x, by_query, need_weights=True).context
    torch.testing.assert_close(layer.attend_self(x, by_query).context, expected, rtol=0, atol=1e-12)
    layer.attend_self(x[:, :1], causal=True)
    layer.train().attend_self(x)
    layer.eval().bfloat16().attend_self(x.bfloat16())
    assert sorting == []


@both
def test_queries_past_the_last_key_see_all_pairs(causal: bool, sorting: list[int]) -> None:
    layer, query, keys = attending(), torch.randn(B, N, WIDTH), torch.randn(B, N - 4, WIDTH)
    layer.backend = "dense"
    expected = layer(query, layer.prepare(keys), start=2, causal=causal).context
    layer.backend = "auto"
    found = layer(query, layer.prepare(keys), start=2, causal=causal).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert sorting == ([] if causal else sorting)


@pytest.mark.slow
def test_it_begins_at_the_length_where_it_is_faster(sorting: list[int]) -> None:
    for overrides, start in (([], 768), (["attention.pattern.num_buckets=128"], 512)):
        layer = attending(*overrides, at_once=False)
        assert layer.pattern.buckets_from == start
        sorting.clear()
        for length in (start - 1, start):
            layer.attend_self(torch.randn(1, length, WIDTH))
        assert sorting == [start]


@both
def test_float32_is_as_near_to_float64_as_all_pairs_are(causal: bool, sorting: list[int]) -> None:
    layer, x = attending(), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING, causal=causal, need_weights=True).context
    found = layer.float().attend_self(x.float(), PADDING, causal=causal).context
    assert sorting == [N]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


def test_inference_gives_the_same_numbers(sorting: list[int]) -> None:
    layer, x = attending(), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING).context
    with torch.inference_mode():
        found = layer.attend_self(x, PADDING).context
    assert torch.equal(found, expected)
    assert sorting == [N, N]


def test_large_scores_overflow_nowhere(sorting: list[int]) -> None:
    layer, x = attending("attention.qk_scale=1e4"), torch.randn(B, N, WIDTH, requires_grad=True)
    expected = layer.attend_self(x, HOLES, causal=True, need_weights=True).context
    found = layer.attend_self(x, HOLES, causal=True).context
    assert sorting == [N]
    check_equal(found, expected, x)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_tensor_of_all_pairs_is_made(causal: bool, sorting: list[int]) -> None:
    n = 600
    layer = attending("attention.num_heads=1", "attention.pattern.num_buckets=32")
    x = torch.randn(1, n, WIDTH, requires_grad=True)
    with Largest() as largest:
        layer.attend_self(x, torch.ones(1, n, dtype=torch.bool), causal=causal).context.sum().backward()
    assert sorting == [n]
    assert largest.numbers < n * n / 10


@both
def test_few_pairs_are_scored_that_share_no_bucket(causal: bool) -> None:
    n, count = 2048, 8
    pattern = LshPattern(head_dim=16, layer=0, num_buckets=count, num_rounds=1, seed=0)
    query, keys = pattern.buckets(torch.randn(1, 1, n, 16)), pattern.buckets(torch.randn(1, 1, n, 16))
    tiles = kernel.BucketTiles(query, keys, None, torch.arange(n), causal=causal)
    scored = sum(tile.bias.numel() for tile in tiles.tiles(torch.zeros(0)))
    share = query[0, 0, 0, :, None] == keys[0, 0, 0]
    pairs = int((share.tril(-1) if causal else share & ~torch.eye(n, dtype=torch.bool)).sum())
    assert pairs > n * n / count / 4
    assert sum(int((tile.bias == 0)[~tile.repeated[:, None]].sum()) for tile in tiles.tiles(query.double())) == pairs
    assert scored < 1.6 * pairs


@given(st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=1, max_size=5))
def test_a_bucket_is_the_first_of_the_largest_directions(rows: list[list[int]]) -> None:
    rotated = torch.tensor(rows, dtype=torch.float64)
    assert torch.equal(bucket(rotated), torch.cat([rotated, -rotated], -1).argmax(-1))


def test_a_query_whose_bucket_is_empty_gets_zeros(sorting: list[int]) -> None:
    layer = attending("attention.pattern.num_buckets=4", "attention.pattern.num_rounds=1", "attention.num_heads=1")
    layer.project_output = None
    query, keys = torch.randn(1, 20, WIDTH, requires_grad=True), torch.randn(1, 2, WIDTH)
    memory = layer.prepare(keys)
    blind = ~layer.pattern.select(layer.score.prepare_query(query)[0], memory.keys[0], None, None).any(-1)[0, 0]
    assert blind.any()
    assert not blind.all()
    context = layer(query, memory).context
    assert (context[0, blind] == 0).all()
    assert (context[0, ~blind] != 0).all()
    (gradient,) = torch.autograd.grad(context.sum(), query)
    assert (gradient[0, blind] == 0).all()
    assert sorting == [2]


@both
def test_a_batch_that_sees_nothing_gets_zeros(causal: bool, sorting: list[int]) -> None:
    layer, x = attending(), torch.randn(B, N, WIDTH, requires_grad=True)
    layer.project_output = None
    context = layer.attend_self(x, torch.zeros(B, N, dtype=torch.bool), causal=causal).context
    assert (context == 0).all()
    (gradient,) = torch.autograd.grad(context.sum(), x)
    assert (gradient == 0).all()
    assert sorting == [N]


def test_compiled_code_sees_all_pairs(sorting: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = attending(), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x).context
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(layer.attend_self(x).context, expected, rtol=0, atol=1e-12)
    assert sorting == [N]
