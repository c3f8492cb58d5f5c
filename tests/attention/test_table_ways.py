"""Scores of positions alone: their fast way gives the dense numbers, and a table is read without a copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import WIDTH, layer, served_by
from torch import Tensor

from seq2seq_attn.attention.backend import table as table_module
from seq2seq_attn.attention.build import no_relative
from seq2seq_attn.attention.score.synthesizer_random import SynthesizerRandomScore
from seq2seq_attn.attention.state import QueryKeyPositions

B, N = 5, 37
LENGTHS = torch.tensor([37, 19, 0, 19, 1])
MASK = torch.arange(N) < LENGTHS[:, None]
HOLES = MASK & (torch.arange(N) % 5 != torch.arange(B)[:, None])
MASKS = {"none": None, "padding": MASK, "holes": HOLES}
PRESETS = ["synthesizer_random", "synthesizer_fixed_random", "synthesizer_factorized_random", "none"]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let short sentences go by tables, in small tiles, and return the lengths of those that do."""
    monkeypatch.setattr(table_module, "TABLE_FROM", 2)
    monkeypatch.setattr(table_module, "ROWS", 7)
    monkeypatch.setattr(table_module, "WEIGHTS", 3 * 7 * N)
    return served_by(table_module.attend, monkeypatch)


def gradients(context: Tensor, upstream: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = torch.autograd.grad((context * upstream).sum(), inputs, allow_unused=True, retain_graph=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def check(found: Tensor, expected: Tensor, real: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-12)
    upstream = torch.randn_like(found) * real[..., None]
    for ours, theirs in zip(*(gradients(x, upstream, *inputs) for x in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_sequence_to_itself_gives_the_dense_numbers(preset: str, mask: str, causal: bool, tables: list[int]) -> None:
    attention, x = layer(preset, relative=no_relative), torch.randn(B, N, WIDTH, requires_grad=True)
    expected = attention.attend_self(x, MASKS[mask], causal=causal, need_weights=True).context
    assert tables == []
    found = attention.attend_self(x, MASKS[mask], causal=causal).context
    assert tables == [N]
    real = torch.ones(B, N, dtype=torch.bool) if mask == "none" else MASKS[mask]
    check(found, expected, real, x, *(p for p in attention.parameters() if p.requires_grad))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("target", [13, 61])
@pytest.mark.parametrize("preset", PRESETS)
def test_another_sequence_gives_the_dense_numbers_in_every_row(preset: str, target: int, tables: list[int]) -> None:
    attention, query = layer(preset), torch.randn(B, target, WIDTH)
    keys = torch.randn(B, N, WIDTH, requires_grad=True)
    memory = attention.prepare(keys, mask=HOLES)
    expected = attention(query, memory, need_weights=True).context
    found = attention(query, memory).context
    assert tables == [N]
    every = torch.ones(B, target, dtype=torch.bool)
    check(found, expected, every, keys, *(p for p in attention.parameters() if p.requires_grad))
    assert (found[2] == 0).all()  # a sentence without keys


@pytest.mark.usefixtures("double")
def test_keys_that_a_sentence_hides_may_have_any_score(tables: list[int]) -> None:
    """The largest score of a row is that of the keys that are seen, so that their weights are not all 0."""
    attention, x = layer("synthesizer_random", relative=no_relative), torch.randn(B, N, WIDTH)
    attention.score.table.data[:, :, 19:] += 5000.0
    expected = attention.attend_self(x, MASK, need_weights=True).context
    found = attention.attend_self(x, MASK).context
    assert tables == [N]
    torch.testing.assert_close(found[MASK], expected[MASK], rtol=0, atol=1e-12)


def test_float32_differs_in_its_last_digits_only(tables: list[int]) -> None:
    attention, x = layer("synthesizer_random", relative=no_relative), torch.randn(B, N, WIDTH)
    expected = attention.attend_self(x, MASK, causal=True, need_weights=True).context
    torch.testing.assert_close(attention.attend_self(x, MASK, causal=True).context[MASK], expected[MASK])
    assert tables == [N]


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("synthesizer_random_vanilla", {}),  # of contents
        ("multihead", {}),
        ("fixed_patterns", {}),  # which hides keys itself
        ("synthesizer_random", {"dtype": torch.bfloat16}),
        ("synthesizer_random", {"mask": MASK[:, None].expand(-1, N, -1)}),  # one for each query
        ("synthesizer_random", {"dropout": 0.5}),
    ],
    ids=str,
)
def test_other_requests_go_other_ways(preset: str, options: dict[str, Any], tables: list[int]) -> None:
    dtype = options.get("dtype", torch.float32)
    attention, x = layer(preset, relative=no_relative).to(dtype), torch.randn(B, N, WIDTH, dtype=dtype)
    attention.dropout = options.get("dropout", 0.0)
    attention.attend_self(x, options.get("mask", MASK))
    assert tables == []


def test_a_compiled_program_goes_dense(tables: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer("synthesizer_random", relative=no_relative).attend_self(torch.randn(B, N, WIDTH), MASK)
    assert tables == []


def test_a_short_sentence_goes_dense() -> None:
    """So its losses are those of all pairs, digit for digit."""
    attention, x = layer("synthesizer_random", relative=no_relative), torch.randn(2, 127, WIDTH)
    found = attention.attend_self(x).context
    attention.backend = "dense"
    assert torch.equal(found, attention.attend_self(x).context)


@pytest.mark.parametrize("start", [0, 3])
def test_a_table_is_read_as_a_view_whose_numbers_and_gradients_are_those_of_a_gather(start: int) -> None:
    score = SynthesizerRandomScore(num_heads=2, max_length=11, trainable=True)
    sizes = {"start": start, "target": 5, "source": 7, "lengths": lambda: torch.tensor([7]), "causal": False}
    positions = QueryKeyPositions.dense(**sizes, device=torch.device("cpu"))
    view = score((), (), positions)
    assert view.untyped_storage().data_ptr() == score.table.untyped_storage().data_ptr()
    positions.rows = None
    gathered = score((), (), positions)
    assert torch.equal(view, gathered)
    upstream = torch.randn(1, 2, 5, 7)
    ours, theirs = (torch.autograd.grad(x, score.table, upstream)[0] for x in (view, gathered))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("window", [slice(2, 6), torch.tensor([1, 4, 5])])
def test_a_table_is_read_in_a_window(window: slice | Tensor) -> None:
    score = SynthesizerRandomScore(num_heads=2, max_length=11, trainable=True)
    sizes = {"start": 3, "target": 1, "source": 7, "lengths": lambda: torch.tensor([7]), "causal": False}
    positions = QueryKeyPositions.dense(**sizes, device=torch.device("cpu"), window=window)
    assert torch.equal(score((), (), positions), score.table[None, :, 3:4][..., window])


def test_hypotheses_at_one_position_read_one_row_each() -> None:
    score = SynthesizerRandomScore(num_heads=2, max_length=11, trainable=True)
    sizes = {"start": 3, "target": 4, "source": 7, "lengths": lambda: torch.tensor([7]), "causal": False}
    positions = QueryKeyPositions.dense(**sizes, device=torch.device("cpu"), same_position=True)
    assert torch.equal(score((), (), positions), score.table[None, :, 3:4, :7].expand(-1, -1, 4, -1))
