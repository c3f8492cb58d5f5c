"""Few keys that are listed for each query, by a pattern or as the best ones: the numbers are those of all pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import check_equal, served_by
from attention.test_gathered_tiles import Largest
from configs import built, composed
from hypothesis import given
from hypothesis import strategies as st

from seq2seq_attn.attention.backend import listed as listed_module
from seq2seq_attn.attention.pattern import top_blocks as top_blocks_module
from seq2seq_attn.attention.pattern.local_p import LocalPPattern
from seq2seq_attn.attention.pattern.top_blocks import TopBlocksPattern
from seq2seq_attn.nn.one_hot import best_positions, list_best_positions

pytestmark = pytest.mark.usefixtures("double")

BEST_FROM = listed_module.BEST_FROM
B, N, WIDTH = 3, 13, 8
PADDING = torch.arange(N) < torch.tensor([[N], [8], [0]])
HOLES = torch.arange(B * N).view(B, N) % 4 != 1
MASKS = {"no mask": None, "padding": PADDING, "holes": HOLES}
OPTIONS = {
    "local_p": ["attention.pattern.k=2"],
    "top_blocks": ["attention.pattern.block_length=3", "attention.pattern.num_blocks=2"],
    "top_k": ["attention.normalizer.k=3"],
}
presets = pytest.mark.parametrize("preset", list(OPTIONS))
both = pytest.mark.parametrize("causal", [False, True])


def attending(preset: str, *overrides: str, relative: Any = None, at_once: bool = True) -> Any:
    """A layer that lists keys from the shortest sentence on, where these are found for a few rows at a time."""
    node = composed(f"attention={preset}", *OPTIONS[preset], "attention.num_heads=2", *overrides).attention
    layer = built(node)(layer=0, relative=relative, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).eval()
    if at_once and preset != "top_k":
        layer.pattern.listed_from = 1
    return layer


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the sentences whose keys were listed."""
    monkeypatch.setattr(listed_module, "BEST_FROM", 0)
    monkeypatch.setattr(listed_module, "MAX_SCORES", 5 * B * 2 * N)
    return served_by(listed_module.attend, monkeypatch)


@both
@pytest.mark.parametrize("mask", MASKS)
@presets
def test_self_attention_equals_its_formula(preset: str, mask: str, causal: bool, listing: list[int]) -> None:
    layer, x = attending(preset), torch.randn(B, N, WIDTH, requires_grad=True)
    expected, _ = attend(layer, x, x, x, MASKS[mask], causal=causal, own=True)
    found = layer.attend_self(x, MASKS[mask], causal=causal).context
    assert listing == [N]
    check_equal(found, expected, x, *layer.parameters())


@pytest.mark.parametrize("source", [7, 20])
@presets
def test_another_sequence_equals_its_formula(preset: str, source: int, listing: list[int]) -> None:
    layer = attending(preset)
    query, keys = (torch.randn(B, length, WIDTH, requires_grad=True) for length in (N, source))
    mask = torch.arange(source) < torch.tensor([[source], [5], [0]])
    expected, _ = attend(layer, query, keys, keys, mask, causal=False)
    found = layer(query, layer.prepare(keys, mask=mask)).context
    assert listing == [source]
    check_equal(found, expected, query, keys, *layer.parameters())


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [
        ("local_p", ["attention/normalizer=sparsemax"]),
        ("local_p", ["attention/normalizer=hard"]),
        ("local_p", ["attention/normalizer=sink", "attention/gate=sigmoid"]),
        ("top_blocks", ["attention.num_heads=4", "attention.num_kv_heads=2"]),
        ("top_blocks", ["attention/normalizer=scalable_softmax", "attention.head_dim=6"]),
        ("top_blocks", ["attention.pattern.num_blocks=100"]),  # all of them
        ("top_blocks", ["attention/normalizer=top_k", "attention.normalizer.k=100"]),
        ("top_k", ["attention.normalizer.k=100"]),
        ("top_k", ["attention.num_heads=4", "attention.num_kv_heads=2"]),
    ],
    ids=str,
)
def test_other_parts_and_sizes_equal_all_pairs(preset: str, overrides: list[str], listing: list[int]) -> None:
    layer, x = attending(preset, *overrides), torch.randn(B, N, WIDTH, requires_grad=True)
    for causal in (False, True):
        expected = layer.attend_self(x, PADDING, causal=causal, need_weights=True).context
        check_equal(layer.attend_self(x, PADDING, causal=causal).context, expected, x, *layer.parameters())
    assert listing == [N, N]


@presets
def test_rotary_positions_are_listed_and_those_that_add_to_scores_are_not(preset: str, listing: list[int]) -> None:
    score = ["attention/score=scaled_dot"]
    for position, lengths in (("rotary", [N]), ("alibi", []), ("relative", [])):
        listing.clear()
        relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
        layer, x = attending(preset, *score, relative=relative), torch.randn(B, N, WIDTH)
        expected = layer.attend_self(x, PADDING, causal=True, need_weights=True).context
        found = layer.attend_self(x, PADDING, causal=True).context
        assert listing == lengths
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@presets
def test_a_mask_of_each_query_a_step_and_half_precision_see_all_pairs(preset: str, listing: list[int]) -> None:
    layer, x = attending(preset), torch.randn(B, N, WIDTH)
    by_query = torch.rand(B, N, N) > 0.3
    expected = layer.attend_self(x, by_query, need_weights=True).context
    torch.testing.assert_close(layer.attend_self(x, by_query).context, expected, rtol=0, atol=1e-12)
    layer.attend_self(x[:, :1], causal=True)
    layer.bfloat16().attend_self(x.bfloat16())
    assert listing == []


@presets
@pytest.mark.usefixtures("listing")
def test_keys_that_are_projected_and_others_are_attended_to_within_autocast(preset: str) -> None:
    node = composed("attention=luong_general", f"attention/pattern={preset.replace('top_k', 'full')}").attention
    if preset == "top_k":
        node = composed("attention=luong_general", "attention/normalizer=top_k", "attention.normalizer.k=3").attention
    layer = built(node)(layer=0, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).float().eval()
    query, keys = torch.randn(B, 5, WIDTH).float(), torch.randn(B, N, WIDTH).float()
    layer.pattern.listed_from = 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(query, layer.prepare(keys)).context
        layer.backend = "dense"
        torch.testing.assert_close(found, layer(query, layer.prepare(keys)).context, rtol=0.02, atol=0.02)


def test_a_score_that_hides_keys_or_is_no_inner_product_sees_all_pairs(listing: list[int]) -> None:
    x = torch.randn(B, N, WIDTH)
    for score in (["fixed", "attention.num_heads=8"], ["additive"]):
        layer = attending("local_p", f"attention/score={score[0]}", *score[1:])
        expected = layer.attend_self(x, need_weights=True).context
        torch.testing.assert_close(layer.attend_self(x).context, expected, rtol=0, atol=1e-12)
    assert listing == []


@presets
def test_it_begins_at_the_length_where_it_is_faster(
    preset: str, listing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_module, "BEST_FROM", BEST_FROM)
    layer = attending(preset, at_once=False)
    start = 24 if preset == "top_k" else layer.pattern.listed_from
    assert 20 < start < 200
    for length in (start - 1, start):
        layer.attend_self(torch.randn(1, length, WIDTH))
    assert listing == [start]


@both
@presets
def test_float32_is_as_near_to_float64_as_all_pairs_are(preset: str, causal: bool, listing: list[int]) -> None:
    layer, x = attending(preset), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING, causal=causal, need_weights=True).context
    found = layer.float().attend_self(x.float(), PADDING, causal=causal).context
    assert listing == [N]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@presets
def test_inference_gives_the_same_numbers(preset: str, listing: list[int]) -> None:
    layer, x = attending(preset), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING).context
    with torch.inference_mode():
        found = layer.attend_self(x, PADDING).context
    assert torch.equal(found, expected)
    assert listing == [N, N]


@presets
def test_dropout_drops_weights_and_scales_the_others(preset: str, listing: list[int]) -> None:
    layer, x = attending(preset, "attention.num_heads=1", "attention.dropout=0.5"), torch.randn(1, N, WIDTH)
    values, memory = torch.eye(N)[None, None], layer.prepare(x)  # so that the context is the weights
    layer.project_values = layer.project_output = None
    memory = type(memory)(memory.keys, values, None)
    weights, dropped = layer(x, memory).context, layer.train()(x, memory).context
    kept = dropped != 0
    torch.testing.assert_close(dropped, 2 * weights * kept, rtol=0, atol=1e-12)
    assert 0.3 < kept[weights > 0].double().mean() < 0.7
    assert listing == [N, N]


@presets
def test_no_tensor_of_all_pairs_is_made(preset: str, listing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_blocks_module, "MAX_NUMBERS", 2**14)
    monkeypatch.setattr(listed_module, "MAX_SCORES", 2**14)
    n = 600
    layer, x = attending(preset, "attention.num_heads=1"), torch.randn(1, n, WIDTH, requires_grad=True)
    with Largest() as largest:
        layer.attend_self(x, torch.ones(1, n, dtype=torch.bool), causal=True).context.sum().backward()
    assert listing == [n]
    assert largest.numbers < n * n / 10


@both
def test_blocks_are_chosen_row_by_row_or_many_rows_at_once(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = attending("top_blocks"), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, HOLES, causal=causal).context
    for numbers in (1, 5 * B * 2 * 8):
        monkeypatch.setattr(top_blocks_module, "MAX_NUMBERS", numbers)
        torch.testing.assert_close(layer.attend_self(x, HOLES, causal=causal).context, expected, rtol=0, atol=1e-12)


def test_of_equally_good_keys_the_first_are_kept(listing: list[int]) -> None:
    layer, x = attending("top_k"), torch.randn(B, 6, WIDTH).repeat(1, 3, 1)[:, :N]  # each token twice or more
    expected, weights = attend(layer, x, x, x, PADDING, causal=False)
    assert not torch.equal(weights, weights.flip(-1))
    torch.testing.assert_close(layer.attend_self(x, PADDING).context, expected, rtol=0, atol=1e-12)
    assert listing == [N]


@given(st.lists(st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 2.0]), min_size=5, max_size=5), max_size=9))
def test_the_best_positions_are_listed_as_they_are_marked(rows: list[list[float]]) -> None:
    scores = torch.tensor(rows).view(-1, 5)
    allowed = scores > -math.inf
    for k in (1, 3, 5, 7):
        marked = best_positions(scores, allowed, k) if k < 5 else allowed
        for row, listed in zip(marked, list_best_positions(scores, k).tolist(), strict=True):
            found = row.nonzero()[:, 0].tolist()
            assert listed == [-1] * (k - len(found)) + found


def test_the_keys_of_local_p_by_hand() -> None:
    pattern = LocalPPattern(query_dim=1, k=2)
    centre = torch.tensor([[0.5, 2.0, 6.7]])
    assert pattern.listed(centre).tolist() == [[[-1, 0, 1, 2, -1], [0, 1, 2, 3, 4], [5, 6, 7, 8, -1]]]


def test_the_keys_of_top_blocks_by_hand() -> None:
    # Blocks of two with the mean keys 0, 3, -2, 1 and 2, the last of one key.
    keys = torch.tensor([[[[0.0], [0.0], [0.5], [5.5], [-1.0], [-3.0], [1.0], [1.0], [2.0]]]])
    pattern = TopBlocksPattern(block_length=2, num_blocks=2)

    def listed(mask: list[int] | None, own: list[int] | None, causal: bool = False) -> list[list[int]]:
        query = torch.ones(1, 1, 1 if own is None else len(own), 1)
        seen = None if mask is None else torch.tensor([[s not in mask for s in range(9)]])
        positions = None if own is None else torch.tensor(own)
        return list(pattern.list_selected(query, keys, seen, positions, causal=causal)[0, 0].tolist())

    assert listed(None, None) == [[2, 3, 8, 9]]  # 9 is after the last key
    assert listed([3], None) == [[6, 7, 8, 9]]
    assert listed(None, [5]) == [[2, 3, 4, 5]]
    assert listed(None, [0, 5, 6], causal=True) == [[-1, -1, 0, 1], [2, 3, 4, 5], [2, 3, 6, 7]]
    assert listed([4, 5, 8], [5, 8], causal=True) == [[0, 1, 2, 3], [2, 3, 6, 7]]  # the own block has no visible key
    assert listed(list(range(9)), [3]) == [[-1, -1, -1, -1]]
