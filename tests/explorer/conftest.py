"""Explorers of small models, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from explorer.three_models import NAMES, OVERRIDES, RNN, TWO_LAYERS, translator_of

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator


@pytest.fixture(scope="session")
def translators(tmp_path_factory: pytest.TempPathFactory) -> list[Translator]:
    """An RNN, a ConvS2S and a Transformer. Tests only read them."""
    return [translator_of(tmp_path_factory.mktemp("explored"), *overrides) for overrides in OVERRIDES]


@pytest.fixture(scope="session")
def explorer(translators: list[Translator]) -> Explorer:
    return Explorer(translators, ["runs/a", "runs/b", "runs/c"])


@pytest.fixture(scope="session")
def sparse_transformer(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A Transformer with sparse self-attention and a Synthesizer as cross-attention."""
    attention = ("attention=sparse", "attention.num_heads=2")
    cross = ("attention@cross_attention=synthesizer_dense", "cross_attention.num_heads=2")
    return translator_of(tmp_path_factory.mktemp("sparse"), "model=transformer", *attention, *cross, *TWO_LAYERS)


@pytest.fixture(scope="session")
def served_models(translators: list[Translator], sparse_transformer: Translator) -> dict[str, Translator]:
    """The RNN with Bahdanau's attention, the ConvS2S, and the sparse Transformer."""
    return dict(zip(NAMES, [*translators[:2], sparse_transformer], strict=True))


@pytest.fixture(scope="session")
def explorers(served_models: dict[str, Translator]) -> dict[str, Explorer]:
    """One of each, with the RNN as its second model."""
    return {
        name: Explorer([model, served_models[NAMES[RNN]]], [f"runs/{name}", "runs/rnn"])
        for name, model in served_models.items()
    }


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Headless Chromium, which must have printed nothing to its console when the test ends."""
    from explorer.browser import console, requested

    chromium.get("about:blank")
    console(chromium), requested(chromium)
    yield chromium
    assert console(chromium) == []
