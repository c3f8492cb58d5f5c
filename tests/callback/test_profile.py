"""A profile has the hooks and the operators of the steps that it measures, and of no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from configs import composed
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from seq2seq_attn.callback.profile import Profile
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_trainer
from seq2seq_attn.training.check_config import check_config

pytestmark = pytest.mark.usefixtures("quiet")


class Small(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(3, 5)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.model(batch[0]).square().sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(folder: Path, batches: int, **trainer: Any) -> pl.Trainer:
    profile = Profile(folder=str(folder), warm_up_steps=2, steps=5, operators=90)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    options |= {"enable_model_summary": False, "log_every_n_steps": 1, "callbacks": [profile]} | trainer
    loader = DataLoader(TensorDataset(torch.randn(batches, 3)))
    done = pl.Trainer(max_epochs=1, **options)
    done.fit(Small(), loader)
    return done


def calls(folder: Path, name: str) -> int:
    """How often the table counts a hook or an operator."""
    (row,) = [row for row in (folder / "profile.txt").read_text(encoding="utf-8").splitlines() if f" {name} " in row]
    return int(row.split()[-1])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_profile_says_where_a_step_spends_its_time(accumulate: int, tmp_path: Path) -> None:
    trainer = trained(tmp_path, batches=11, accumulate_grad_batches=accumulate)
    assert calls(tmp_path, "[Strategy]SingleDeviceStrategy.training_step") == 5
    assert calls(tmp_path, "[Strategy]SingleDeviceStrategy.backward") == 5
    assert calls(tmp_path, "aten::linear") == 5
    assert "Self CPU" in (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert isinstance(trainer.profiler, pl.profilers.PassThroughProfiler)


def test_a_run_that_ends_early_has_its_table_of_fewer_steps(tmp_path: Path) -> None:
    trained(tmp_path, batches=5)
    assert calls(tmp_path, "[Strategy]SingleDeviceStrategy.backward") == 3


def test_a_run_that_is_too_short_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, batches=2)
    assert "the profile begins after 2 steps, and the training had 2" in caplog.text
    assert not (tmp_path / "profile.txt").exists()


def test_a_run_that_fails_leaves_no_profiler_running(tmp_path: Path) -> None:
    class Fails(pl.Callback):
        def on_before_backward(self, trainer: pl.Trainer, *args: Any) -> None:
            if trainer.global_step == 4:
                raise ValueError("any")

    profile = Profile(folder=str(tmp_path), warm_up_steps=2, steps=5, operators=90)
    with pytest.raises(ValueError, match=r"^any$"):
        trained(tmp_path, batches=9, callbacks=[profile, Fails()])
    assert not torch.autograd.profiler._is_profiler_enabled
    assert calls(tmp_path, "[Strategy]SingleDeviceStrategy.training_step") == 3  # the third fails after it


@pytest.mark.parametrize(("device", "column"), [("cpu", "cpu_time_total"), ("meta", "device_time_total")])
def test_the_rows_are_sorted_by_the_time_on_the_device_of_the_run(
    device: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    given: dict[str, Any] = {}
    averages = SimpleNamespace(table=lambda **options: asked.update(options) or "")
    done: Any = object.__new__(torch.profiler.profile)
    done.step_num, done.key_averages = 7, lambda: averages
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "cpu")
    started = SimpleNamespace(start=lambda: None)
    monkeypatch.setattr("torch.profiler.profile", lambda **options: given.update(options) or started)
    profile = Profile(folder=str(tmp_path), warm_up_steps=2, steps=5, operators=90)
    profile.on_train_start(SimpleNamespace(is_global_zero=True), SimpleNamespace(device=torch.device(device)))
    given["on_trace_ready"](done)
    assert asked["sort_by"] == column


def test_two_profilers_of_one_run_are_refused() -> None:
    config = composed("callback=[default,profile]", "trainer.profiler=simple")
    with pytest.raises(UserError, match=r"callback=profile and trainer\.profiler measure the same steps"):
        check_config(config)


def test_a_run_is_profiled_if_asked_into_its_folder(tmp_path: Path) -> None:
    overrides = ["callback=[seeding,profile]", "trainer.accelerator=cpu", f"paths.run_dir={tmp_path}"]
    config: Any = OmegaConf.masked_copy(composed(*overrides), ["callback", "trainer", "paths", "seed"])
    trainer = build_trainer(OmegaConf.to_container(config, resolve=True), tmp_path)
    found = [callback for callback in trainer.callbacks if isinstance(callback, Profile)]
    assert [callback.file for callback in found] == [tmp_path / "profile.txt"]
