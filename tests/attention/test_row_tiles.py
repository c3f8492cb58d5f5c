"""All pairs, some rows at a time: the numbers of all at once, for every request that no faster way serves."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.layers import check_equal, served_by
from attention.test_gathered_tiles import Largest
from configs import attention_of, built, composed
from torch import Tensor

from seq2seq_attn.attention.backend import row_tiles

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH = 3, 13, 8
SIZES = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
PADDING = torch.arange(N) < torch.tensor([[N], [8], [0]])
BY_QUERY = (torch.arange(B * N * N).view(B, N, N) * 7) % 5 > 1
MASKS = {"no mask": None, "padding": PADDING, "of each query": BY_QUERY}
# Scores, normalizers, mixes and patterns without a faster way; each meets one mask when causal and another when not.
CASES: list[tuple[str, list[str]]] = [
    ("bahdanau", []),
    ("luong_concat", ["attention/normalizer=sparsemax"]),
    ("entmax15", []),
    ("relu", ["attention.num_kv_heads=1"]),
    ("soft_cap", ["attention/mix=talking_heads"]),
    ("differential", []),
    ("forgetting", []),
    ("stick_breaking", []),
    ("l2", ["attention/normalizer=sigmoid"]),
    ("lsh", ["attention/normalizer=sparsemax"]),
    ("wait_k", ["attention/normalizer=entmax15", "attention.pattern.k=2"]),
    ("synthesizer_dense", ["attention/normalizer=relu", "attention.score.max_length=20"]),
    ("synthesizer_random", ["attention/normalizer=sparsemax", "attention.score.max_length=20"]),
    ("fixed_patterns", ["attention.num_heads=8"]),
]


def attending(preset: str, *overrides: str, **options: Any) -> Any:
    return attention_of(preset, "attention.num_heads=2", *overrides, **SIZES, **options).eval()


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the sentences that go by tiles of three rows, or of one row of an additive score."""
    for name in ("SOURCE_FROM", "CAUSAL_FROM", "RECOMPUTED_FROM"):
        monkeypatch.setattr(row_tiles, name, 0)
    monkeypatch.setattr(row_tiles, "FEWEST_ROWS", 1)
    monkeypatch.setattr(row_tiles, "TILE", 3 * B * 2 * N)
    return served_by(row_tiles.attend, monkeypatch)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", range(len(CASES)), ids=[preset for preset, _ in CASES])
def test_the_numbers_are_those_of_all_rows_at_once(
    number: int, causal: bool, tiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    preset, overrides = CASES[number]
    if causal and number % 2:
        monkeypatch.setattr(row_tiles, "RECOMPUTED_FROM", 10**9)
    layer, x = attending(preset, *overrides), torch.randn(B, N, WIDTH, requires_grad=True)
    parameters = [one for one in layer.parameters() if one.requires_grad]
    mask = list(MASKS.values())[(number + causal) % 3]
    expected = layer.attend_self(x, mask, causal=causal, need_weights=True).context
    found = layer.attend_self(x, mask, causal=causal).context
    assert tiled == [N]
    check_equal(found, expected, x, *parameters)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", ["local_p", "fixed_patterns"])
def test_a_tile_knows_where_the_sentence_ends_and_not_its_own_rows_alone(
    preset: str, causal: bool, tiled: list[int]
) -> None:
    heads = ["attention.num_heads=8"] if preset == "fixed_patterns" else []
    layer, x = attending(preset, *heads), torch.randn(B, N, WIDTH, requires_grad=True)
    mask = torch.arange(N) < torch.arange(1, N + 1).roll(4)[:, None]  # each query sees one key more than that before
    mask = mask & (torch.arange(N) < torch.tensor([N, 8, 3])[:, None, None])
    expected = layer.attend_self(x, mask, causal=causal, need_weights=True).context
    check_equal(layer.attend_self(x, mask, causal=causal).context, expected, x, *layer.parameters())
    assert tiled == [N]


@pytest.mark.parametrize("position", ["alibi", "relative"])
def test_positions_that_add_to_scores_and_contexts_are_those_of_the_rows(position: str, tiled: list[int]) -> None:
    relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
    layer, x = attending("relu", relative=relative), torch.randn(B, N, WIDTH, requires_grad=True)
    expected = layer.attend_self(x, PADDING, causal=True, need_weights=True).context
    check_equal(layer.attend_self(x, PADDING, causal=True).context, expected, x, *layer.parameters())
    assert tiled == [N]


@pytest.mark.parametrize("mask", [None, torch.arange(17) < torch.tensor([[17], [5], [0]])], ids=["no mask", "padding"])
def test_another_sequence_gives_the_numbers_of_all_rows_at_once(mask: Tensor | None, tiled: list[int]) -> None:
    layer = attending("bahdanau")
    query, keys = torch.randn(B, N, WIDTH, requires_grad=True), torch.randn(B, 17, WIDTH, requires_grad=True)
    expected = layer(query, layer.prepare(keys, mask=mask), need_weights=True).context
    found = layer(query, layer.prepare(keys, mask=mask)).context
    check_equal(found, expected, query, keys, *layer.parameters())
    assert tiled == [17]


@pytest.mark.parametrize("preset", ["relu", "coverage"])
def test_one_mask_for_all_queries_may_have_an_axis_of_its_own(preset: str, tiled: list[int]) -> None:
    layer, query, keys = attending(preset), torch.randn(B, 5, WIDTH), torch.randn(B, N, WIDTH)
    expected = layer(query, layer.prepare(keys, mask=PADDING), need_weights=True).context
    found = layer(query, layer.prepare(keys, mask=PADDING[:, None])).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert tiled == ([N] if preset == "relu" else [])  # coverage goes step by step


def test_inference_gives_the_same_numbers(tiled: list[int]) -> None:
    layer, x = attending("bahdanau"), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, PADDING).context
    with torch.inference_mode():
        assert torch.equal(layer.attend_self(x, PADDING).context, expected)
    assert tiled == [N, N]


def test_a_chunk_after_a_past_sees_it(tiled: list[int]) -> None:
    layer, x = attending("relu"), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, causal=True, need_weights=True).context
    past = layer.attend_self(x[:, :4], causal=True).memory
    with torch.no_grad():
        found = layer.attend_self(x[:, 4:], past=past, causal=True).context
    torch.testing.assert_close(found, expected[:, 4:], rtol=0, atol=1e-12)
    assert tiled == [4, N]


@pytest.mark.parametrize(
    ("preset", "overrides"), [("multihead", ["attention.dropout=0.5"]), ("hard", ["attention.dropout=0.5"])]
)
def test_what_is_drawn_is_drawn_once(preset: str, overrides: list[str], tiled: list[int]) -> None:
    layer = attending(preset, "attention.num_heads=1", *overrides).train()
    values, x = torch.eye(N).expand(1, 1, -1, -1).requires_grad_(), torch.randn(1, N, WIDTH)
    layer.project_values = layer.project_output = None
    memory = layer.prepare(x)
    attended = layer(x, type(memory)(memory.keys, values, None))
    weights = attended.context.detach()[0]  # values of the unit matrix
    attended.context.sum().backward()  # computes the rows again
    torch.testing.assert_close(values.grad[0, 0], weights.sum(0)[:, None].expand(-1, N), rtol=0, atol=1e-12)
    assert tiled == [N]
    assert (weights == 0).any()
    if preset == "hard":
        assert attended.log_prob.shape == attended.entropy.shape == (1, N)


def test_few_pairs_short_sources_and_a_step_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tiled = served_by(row_tiles.attend, monkeypatch)
    monkeypatch.setattr(row_tiles, "SOURCE_FROM", 20)
    monkeypatch.setattr(row_tiles, "CAUSAL_FROM", 2 * 45**2)
    monkeypatch.setattr(row_tiles, "RECOMPUTED_FROM", 2 * 60**2)
    relu = attending("relu")  # two numbers of a pair
    additive = attending("bahdanau", "attention.num_heads=1")  # eight
    for layer, batch, length, causal in (
        *((relu, 1, 59, False), (relu, 1, 60, False), (relu, 1, 44, True), (relu, 1, 45, True)),
        *((relu, 99, 19, True), (relu, 99, 20, True), (additive, 1, 22, True), (additive, 1, 23, True)),
    ):
        layer.attend_self(torch.randn(batch, length, WIDTH), causal=causal)
    assert tiled == [60, 45, 20, 23]
    additive(torch.randn(9, 1, WIDTH), additive.prepare(torch.randn(9, 300, WIDTH)))
    coverage = attending("coverage")  # goes step by step
    coverage(torch.randn(9, 3, WIDTH), coverage.prepare(torch.randn(9, 300, WIDTH)))
    assert len(tiled) == 4


def test_scores_are_computed_again_only_where_they_are_many(tiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, calls = attending("relu"), torch.randn(B, N, WIDTH, requires_grad=True), []
    score = type(layer.score).forward
    monkeypatch.setattr(type(layer.score), "forward", lambda *given: (calls.append(None), score(*given))[1])
    layer.attend_self(x, causal=True).context.sum().backward()
    assert len(calls) == 2 * math.ceil(N / 3)
    calls.clear()
    monkeypatch.setattr(row_tiles, "RECOMPUTED_FROM", 10**9)
    layer.attend_self(x, causal=True).context.sum().backward()
    assert len(calls) == math.ceil(N / 3)
    assert tiled == [N, N]


@pytest.mark.parametrize("preset", ["bahdanau", "relu"])
def test_no_tensor_of_all_pairs_is_made(preset: str, tiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    n = 300
    monkeypatch.setattr(row_tiles, "TILE", 2**13)
    layer, x = attending(preset, "attention.num_heads=1"), torch.randn(1, n, WIDTH, requires_grad=True)
    with Largest() as largest:
        layer.attend_self(x, torch.ones(1, n, dtype=torch.bool)).context.sum().backward()
    assert tiled == [n]
    assert largest.numbers < n * n / 10
