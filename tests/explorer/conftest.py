from __future__ import annotations

import pytest
from explorer.three_models import OVERRIDES, translator_of

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator


@pytest.fixture(scope="session")
def translators(tmp_path_factory: pytest.TempPathFactory) -> list[Translator]:
    """An RNN, a ConvS2S and a Transformer. Tests only read them."""
    return [translator_of(tmp_path_factory.mktemp("explored"), *overrides) for overrides in OVERRIDES]


@pytest.fixture(scope="session")
def explorer(translators: list[Translator]) -> Explorer:
    return Explorer(translators, ["runs/a", "runs/b", "runs/c"])
