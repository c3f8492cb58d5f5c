"""Attention without a softmax: the product of keys and values comes first and gives the numbers of all pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import check_equal, served_by
from attention.test_gathered_tiles import Largest
from configs import built, composed

from seq2seq_attn.attention.backend import keys_first

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH = 3, 17, 8  # a head is 4 wide, so that all pairs are more work from 8 positions on, and when causal from 16
PADDING = torch.arange(N) < torch.tensor([[N], [10], [0]])
HOLES = torch.arange(B * N).view(B, N) % 4 != 1
MASKS = {"no mask": None, "padding": PADDING, "holes": HOLES}


def attending(*overrides: str, relative: Any = None) -> Any:
    node = composed("attention=softmax_free", "attention.num_heads=2", *overrides).attention
    return built(node)(layer=0, relative=relative, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).eval()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the sources whose keys met their values first."""
    return served_by(keys_first.attend, monkeypatch)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", [[], ["attention.num_kv_heads=1"]], ids=["own heads", "one head of keys"])
def test_self_attention_equals_its_formula(heads: list[str], mask: str, causal: bool, taken: list[int]) -> None:
    layer, x = attending(*heads), torch.randn(B, N, WIDTH, requires_grad=True)
    expected, _ = attend(layer, x, x, x, MASKS[mask], causal=causal)
    found = layer.attend_self(x, MASKS[mask], causal=causal).context
    assert taken == [N]
    check_equal(found, expected, x, *layer.parameters())


def test_chunks_of_a_long_sentence_equal_all_pairs(taken: list[int]) -> None:
    layer, x = attending(), torch.randn(1, 150, WIDTH, requires_grad=True)
    expected = layer.attend_self(x, causal=True, need_weights=True).context
    check_equal(layer.attend_self(x, causal=True).context, expected, x, *layer.parameters())
    assert taken == [150]


def test_another_sequence_equals_its_formula(taken: list[int]) -> None:
    layer = attending()
    query, keys = (torch.randn(B, length, WIDTH, requires_grad=True) for length in (11, 19))
    mask = torch.arange(19) < torch.tensor([[19], [5], [0]])
    expected, _ = attend(layer, query, keys, keys, mask, causal=False)
    check_equal(layer(query, layer.prepare(keys, mask=mask)).context, expected, query, keys, *layer.parameters())
    assert taken == [19]


def test_it_begins_where_all_pairs_are_more_work(taken: list[int]) -> None:
    layer = attending()
    for length, causal in ((7, False), (8, False), (15, True), (16, True)):
        layer.attend_self(torch.randn(1, length, WIDTH), causal=causal)
    assert taken == [8, 16]


@pytest.mark.parametrize(
    "overrides",
    [
        ["attention.dropout=0.5"],
        ["attention/pattern=local", "attention.pattern.k=2"],
        ["attention/score=cosine", "attention/mix=talking_heads"],
        ["attention/score=additive"],
        ["attention/normalizer=relu"],
    ],
    ids=str,
)
def test_what_needs_the_weights_themselves_goes_by_them(overrides: list[str], taken: list[int]) -> None:
    attending(*overrides).train().attend_self(torch.randn(B, N, WIDTH))
    assert taken == []


@pytest.mark.parametrize(("position", "lengths"), [("rotary", [N]), ("t5", []), ("relative", [])])
def test_rotary_positions_are_served_and_those_that_add_to_scores_are_not(
    position: str, lengths: list[int], taken: list[int]
) -> None:
    relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
    layer, x = attending(relative=relative), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING, causal=True, need_weights=True).context
    torch.testing.assert_close(layer.attend_self(x, PADDING, causal=True).context, expected, rtol=0, atol=1e-12)
    assert taken == lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_not_rounded_to_half_precision(dtype: torch.dtype, taken: list[int]) -> None:
    layer, x = attending().to(dtype), torch.randn(1, 2000, WIDTH).to(dtype)
    expected = layer.double().attend_self(x.double()).context
    found = layer.to(dtype).attend_self(x).context
    assert taken == [2000, 2000]
    assert found.dtype == dtype
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < 8 * torch.finfo(dtype).eps


def test_no_tensor_of_all_pairs_is_made(taken: list[int]) -> None:
    n = 600
    layer, x = attending("attention.num_heads=1"), torch.randn(1, n, WIDTH, requires_grad=True)
    with Largest() as largest:
        layer.attend_self(x, torch.ones(1, n, dtype=torch.bool), causal=True).context.sum().backward()
    assert taken == [n]
    assert largest.numbers < n * n / 8  # chunks of 64 rows
