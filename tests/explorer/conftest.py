"""A browser, and explorers of small models, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator

MODELS = {
    "rnn": ["attention=bahdanau"],
    "conv": ["model=conv", "model.encoder.num_layers=2", "model.decoder.num_layers=2"],
    "transformer": [
        "model=transformer", "attention=sparse", "attention@cross_attention=synthesizer_dense",
        "attention.num_heads=2", "cross_attention.num_heads=2",
        "model.encoder.num_layers=2", "model.decoder.num_layers=2",
    ],
}  # fmt: skip


@pytest.fixture(scope="session")
def translators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Translator]:
    """A small untrained model of each architecture, with one tokenizer."""
    from tiny import write_checkpoint

    folder = tmp_path_factory.mktemp("explored")
    return {
        name: Translator.load(write_checkpoint(folder / f"{name}.ckpt", *overrides), device="cpu")
        for name, overrides in MODELS.items()
    }


@pytest.fixture(scope="session")
def explorers(translators: dict[str, Translator]) -> dict[str, Explorer]:
    """One of each, the second model of which is the RNN's."""
    return {
        name: Explorer([translator, translators["rnn"]], [f"runs/{name}", "runs/rnn"])
        for name, translator in translators.items()
    }


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from explorer.browser import start_browser

    browser = start_browser(tmp_path_factory.mktemp("downloads"))
    if browser is None:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Headless Chromium, which must have printed nothing to its console when the test ends."""
    from explorer.browser import console, requested

    chromium.get("about:blank")
    console(chromium), requested(chromium)
    yield chromium
    assert console(chromium) == []
