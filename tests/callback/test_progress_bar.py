"""The bar is drawn on a terminal alone, and counts epochs from 1."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import rich
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.demos.boring_classes import BoringModel

from seq2seq_attn.callback.progress_bar import ProgressBar

pytestmark = pytest.mark.usefixtures("quiet")


def set_up(max_epochs: int) -> ProgressBar:
    bar = ProgressBar(refresh_rate=4, leave=False)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=max_epochs)
    bar.setup(trainer, BoringModel(), "fit")
    return bar


@pytest.mark.parametrize(("terminal", "drawn"), [("1", True), ("", False)])
def test_it_is_drawn_on_a_terminal_alone(terminal: str, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", terminal)
    monkeypatch.setattr(rich, "_console", None)  # the one that is made now would stay coloured
    assert set_up(3).is_enabled == drawn


def test_it_counts_epochs_from_1_by_a_private_method_of_lightning_2_6_6() -> None:
    assert callable(RichProgressBar._get_train_description)
    assert set_up(3)._get_train_description(0) == "Epoch 1/3"
    assert set_up(-1)._get_train_description(1) == "Epoch 2"
