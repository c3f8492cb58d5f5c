"""A profile divides the time of a step: its parts sum to all of it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from configs import composed
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from seq2seq_attn.callback.profile import Profile, lines, parts
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_trainer

pytestmark = pytest.mark.usefixtures("quiet")


class Small(pl.LightningModule):
    """Its forward sleeps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.model, self.seconds = nn.Linear(3, 5), seconds

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        time.sleep(self.seconds)
        return self.model(batch[0]).square().sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(folder: Path, batches: int, **trainer: Any) -> pl.Trainer:
    profile = Profile(folder=str(folder), warm_up_steps=2, steps=5, operators=7)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    options |= {"enable_model_summary": False, "log_every_n_steps": 1, "callbacks": [profile]} | trainer
    loader = DataLoader(TensorDataset(torch.randn(batches, 3)))
    done = pl.Trainer(max_epochs=1, **options)
    done.fit(Small(seconds=0.02), loader)
    return done


def table(folder: Path) -> dict[str, tuple[float, float]]:
    """Milliseconds and percent of each part of a step."""
    head = (folder / "profile.txt").read_text(encoding="utf-8").partition("\n\nHooks")[0]
    return {name: (float(ms), float(share)) for ms, share, name in re.findall(r"([\d.]+) ms +([\d.]+)%  (.+)", head)}


def test_the_parts_sum_to_the_step_and_the_optimizer_has_neither_forward_nor_backward() -> None:
    hooks = {
        "[_TrainingEpochLoop].train_dataloader_next": 0.25,
        "[Strategy]SingleDevice.batch_to_device": 0.25,
        "run_training_batch": 7.5,
        "[LightningModule]Small.optimizer_step": 7.0,
        "[Strategy]SingleDevice.training_step": 3.0,
        "[Strategy]SingleDevice.backward": 3.5,
        "[Callback]Throughput.on_train_batch_end": 0.75,
    }
    found = parts(hooks, total=10.0)
    assert found == {"data": 0.5, "forward": 3.0, "backward": 3.5, "optimizer": 1.0, "rest": 2.0}
    assert lines(found, total=10.0, steps=10).splitlines()[:2] == [
        "    50.000 ms   5.00%  data",
        "   300.000 ms  30.00%  forward",
    ]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_profile_says_where_a_step_spends_its_time(accumulate: int, tmp_path: Path) -> None:
    trainer = trained(tmp_path, batches=11, accumulate_grad_batches=accumulate)
    found = table(tmp_path)
    assert list(found) == ["data", "forward", "backward", "optimizer", "rest"]
    assert found["forward"][0] >= 20
    assert all(ms >= 0 for ms, _ in found.values())
    assert sum(share for _, share in found.values()) == pytest.approx(100, abs=0.1)
    text = (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert text.startswith("A training step, mean of 5, ")
    assert "[Strategy]SingleDeviceStrategy.backward" in text
    assert "aten::" in text
    assert "Self CPU" in text
    assert isinstance(trainer.profiler, pl.profilers.PassThroughProfiler)


def test_a_run_that_ends_early_has_its_table_of_fewer_steps(tmp_path: Path) -> None:
    trained(tmp_path, batches=5)
    assert "mean of 3, " in (tmp_path / "profile.txt").read_text(encoding="utf-8")


def test_a_run_that_is_too_short_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, batches=2)
    assert "the profile begins after 2 steps, and the training had 2" in caplog.text
    assert not (tmp_path / "profile.txt").exists()


def test_a_run_that_fails_leaves_no_profiler_running(tmp_path: Path) -> None:
    class Fails(pl.Callback):
        def on_before_backward(self, trainer: pl.Trainer, *args: Any) -> None:
            if trainer.global_step == 4:
                raise ValueError("any")

    profile = Profile(folder=str(tmp_path), warm_up_steps=2, steps=5, operators=7)
    with pytest.raises(ValueError, match=r"^any$"):
        trained(tmp_path, batches=9, callbacks=[profile, Fails()])
    assert not torch.autograd.profiler._is_profiler_enabled
    assert "mean of 2, " in (tmp_path / "profile.txt").read_text(encoding="utf-8")


def test_two_profilers_of_one_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"callback=profile and trainer\.profiler measure the same steps"):
        trained(tmp_path, batches=2, profiler="simple")


def test_a_run_is_profiled_if_asked_into_its_folder(tmp_path: Path) -> None:
    overrides = ["callback=[seeding,profile]", "trainer.accelerator=cpu", f"paths.run_dir={tmp_path}"]
    config: Any = OmegaConf.masked_copy(composed(*overrides), ["callback", "trainer", "paths", "seed"])
    trainer = build_trainer(OmegaConf.to_container(config, resolve=True), tmp_path)
    found = [callback for callback in trainer.callbacks if isinstance(callback, Profile)]
    assert [callback.file for callback in found] == [tmp_path / "profile.txt"]
