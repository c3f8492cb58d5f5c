"""`attention.backend=dense`: the score's own methods compute every request, with the numbers of the fast backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention.layers import LINEAR, WIDTH, by_blocks, cross_layer, self_layer
from configs import CONF, attentions_at_once, model_of
from torch import Tensor

from seq2seq_attn.attention import Attention
from seq2seq_attn.attention.backend import listed, row_tiles, table

PRESETS = attentions_at_once()
METHODS = {"prepare_query", "prepare_keys", "forward"}
LENGTHS = torch.tensor([13, 6, 0])
MASK = torch.arange(13) < LENGTHS[:, None]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend serves the shortest sentences, and all pairs are computed two rows at a time."""
    monkeypatch.setattr(table, "TABLE_FROM", 1)
    monkeypatch.setattr(listed, "BEST_FROM", 0)
    for name in ("SOURCE_FROM", "CAUSAL_FROM", "RECOMPUTED_FROM"):
        monkeypatch.setattr(row_tiles, name, 0)
    monkeypatch.setattr(row_tiles, "FEWEST_ROWS", 1)
    monkeypatch.setattr(row_tiles, "TILE", 2 * 3 * 8 * 13)


def gradients(layer: Any, context: Tensor, x: Tensor) -> list[Tensor]:
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    upstream = torch.linspace(-1, 1, context.numel()).view_as(context) * MASK[..., None]
    found = torch.autograd.grad((context * upstream).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)]


@pytest.mark.usefixtures("double", "at_once")
@pytest.mark.parametrize("preset", PRESETS)
def test_dense_gives_the_values_and_gradients_of_auto(preset: str) -> None:
    layer, x = by_blocks(self_layer(preset)), torch.randn(3, 13, WIDTH, requires_grad=True)
    for causal in (False, True):
        layer.attention.backend = "auto"
        auto = layer(x, MASK, causal=causal).context
        with torch.inference_mode():
            torch.testing.assert_close(layer(x, MASK, causal=causal).context, auto, rtol=0, atol=1e-12)
        layer.attention.backend = "dense"
        dense = layer(x, MASK, causal=causal).context
        torch.testing.assert_close(auto[MASK], dense[MASK], rtol=0, atol=1e-12)
        for a, d in zip(gradients(layer, auto, x), gradients(layer, dense, x), strict=True):
            torch.testing.assert_close(a, d, rtol=0, atol=1e-10)


def lines_of(preset: str, part: str, name: str) -> tuple[str, ...]:
    """Return what a preset says with another part and without its heads, of which the layers here have eight."""
    lines = (CONF / "attention" / f"{preset}.yaml").read_text("utf-8").splitlines()
    said = (line.partition("#")[0].strip() for line in lines)
    kept = (line for line in said if not line.startswith((f"- {part}:", "num_heads:")))
    return tuple(sorted([*kept, f"- {part}: {name}"]))


def distinct() -> list[tuple[str, str]]:
    """Return each layer once, by the first preset that gives it."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for preset in sorted(set(PRESETS) - LINEAR):
        for other in ("normalizer=sink", "mix=talking_heads"):
            if (preset, other) != ("fixed_patterns", "mix=talking_heads"):  # refused
                found.setdefault(lines_of(preset, *other.split("=")), (preset, other))
    assert len(found) > len(PRESETS)
    return list(found.values())


@pytest.mark.usefixtures("double", "at_once")
@pytest.mark.parametrize(
    ("preset", "other"),
    [pytest.param(*pair, marks=[pytest.mark.slow] if number % 2 else []) for number, pair in enumerate(distinct())],
)
def test_fast_backends_see_a_part_that_is_not_the_presets(preset: str, other: str) -> None:
    layer, x = by_blocks(self_layer(preset, f"attention/{other}")), torch.randn(3, 13, WIDTH)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)  # a sink and a matrix over the heads do nothing at first
    layer.eval()
    for causal in (False, True):
        layer.attention.backend = "auto"
        auto = layer(x, MASK, causal=causal).context
        layer.attention.backend = "dense"
        dense = layer(x, MASK, causal=causal).context
        torch.testing.assert_close(auto[MASK], dense[MASK], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - LINEAR))
def test_dense_calls_the_methods_of_the_score_in_training(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, cross = (make(preset).attention.train() for make in (self_layer, cross_layer))
    layer.backend = cross.backend = "dense"
    x = torch.randn(7, 13, WIDTH)  # enough rows to pack the projections
    assert called(layer.score, lambda: layer.attend_self(x), monkeypatch) == METHODS
    assert called(cross.score, lambda: cross(x, cross.prepare(x)), monkeypatch) == METHODS


def called(score: Any, run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return which of the score's methods are called."""
    names = set()

    def record(name: str, method: Any) -> Callable[..., Any]:
        return lambda *arguments: names.add(name) or method(*arguments)

    for name in METHODS:
        monkeypatch.setattr(score, name, record(name, getattr(score, name)))
    run()
    return names


def test_every_attention_of_a_model_takes_the_switch() -> None:
    model = model_of(
        "model=transformer", "attention=sparse", "attention.backend=dense", "cross_attention.backend=dense"
    )
    backends = [module.backend for module in model.modules() if isinstance(module, Attention)]
    assert backends == ["dense"] * len(backends)
    assert len(backends) >= 3
