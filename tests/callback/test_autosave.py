"""After how many updates and minutes `last.ckpt` is saved; what a run loses: checkpoint/test_resume.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from seq2seq_attn.callback import autosave
from seq2seq_attn.callback.autosave import Autosave
from seq2seq_attn.checkpoint.exact_resume import ExactResume, check_states
from seq2seq_attn.errors import UserError


class Run:
    """A run of updates of one batch, each of which ends at a time, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, callback: Autosave, start: float = 1000.0) -> None:
        self.now, self.saved = start, []
        self.trainer: Any = Mock(spec=pl.Trainer, world_size=1, global_step=0)
        monkeypatch.setattr(autosave.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(autosave, "is_between_updates", lambda trainer: True)
        monkeypatch.setattr(autosave, "save_last", lambda trainer, folder: self.saved.append(self.now - start))
        self.callback, self.start = callback, start
        callback.on_train_start(self.trainer, None)

    def update(self, at: float) -> None:
        """Another one, which ends `at` seconds after the start; the next begins at once."""
        batch = self.trainer.global_step
        self.trainer.global_step, self.now = batch + 1, self.start + at
        self.callback.on_train_batch_end(self.trainer, None, None, None, batch)
        self.callback.on_train_batch_start(self.trainer, None, None, batch + 1)


def test_a_run_is_saved_when_the_minutes_since_the_last_save_are_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run(monkeypatch, Autosave(folder=str(tmp_path), every_steps=None, every_minutes=2.0))
    for at in (60.0, 119.0, 121.0, 122.0, 240.5, 241.5, 242.0, 500.0):
        run.update(at)
    assert run.saved == [121.0, 241.5, 500.0]


def test_updates_are_counted_without_the_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Run(monkeypatch, Autosave(folder=str(tmp_path), every_steps=3, every_minutes=None))
    for at in range(1, 8):
        run.update(float(at))
    assert run.saved == [3.0, 6.0]


class Kept(pl.Callback):
    """A callback that keeps something."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": 1, "best": {"at": self.kept}}


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (np.float64(1.5), r"^Kept at best at at holds numpy\S+, and a checkpoint holds tensors and plain data alone"),
        (lambda: None, r"^Kept cannot be saved \(.*; leave it out of the state_dict\(\)$"),
    ],
)
def test_a_state_that_no_checkpoint_may_hold_is_refused_before_anything_is_written(kept: Any, sentence: str) -> None:
    plain = {"callbacks": [Kept([1, torch.ones(2), (True, None)])], "lr_scheduler_configs": []}
    check_states(SimpleNamespace(**plain))
    for part in ({"callbacks": [Kept(kept)]}, {"lr_scheduler_configs": [SimpleNamespace(scheduler=Kept(kept))]}):
        with pytest.raises(UserError, match=sentence):
            ExactResume().on_fit_start(SimpleNamespace(**plain | part), None)


def test_neither_saves_only_after_validations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Run(monkeypatch, Autosave(folder=str(tmp_path), every_steps=None, every_minutes=None))
    run.update(1e6)
    assert not run.saved
    run.trainer.state, run.trainer.sanity_checking = SimpleNamespace(fn="fit"), True
    run.callback.on_validation_end(run.trainer, None)
    run.update(1e6 + 1)
    assert not run.saved
    run.trainer.sanity_checking = False
    run.callback.on_validation_end(run.trainer, None)
    run.update(1e6 + 2)
    assert run.saved == [1e6 + 2]
