"""A profile divides the time of a step: what is counted is all of it, each moment once."""

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

from seq2seq_attn.callback.profile import PARTS, Profile, parts_table
from seq2seq_attn.callback.self_time import SelfTime
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.run import build_trainer

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{of_lightning}")
    for of_lightning in ("does not have many workers", "treespec.*deprecated")
]


class Small(pl.LightningModule):
    """With a model inside, as ours; its forward sleeps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.model, self.seconds = nn.Linear(3, 5), seconds
        self.model.register_forward_hook(lambda *_: time.sleep(seconds))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.model(batch[0]).square().sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(folder: Path, batches: int, **trainer: Any) -> Profile:
    profile = Profile(folder=str(folder), warm_up_steps=2, steps=5, operator_steps=1, operators=7)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    options |= {"enable_model_summary": False, "log_every_n_steps": 1, "callbacks": [profile]} | trainer
    loader = DataLoader(TensorDataset(torch.randn(batches, 3)))
    pl.Trainer(max_epochs=1, **options).fit(Small(seconds=0.02), loader)
    return profile


def test_time_belongs_to_the_innermost_action_while_the_clock_runs() -> None:
    clock = SelfTime()
    now = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    clock._now = lambda: next(now)
    clock.start("before")
    clock.run(True)  # 0
    clock.start("outer")  # 1
    clock.start("inner")  # 3
    clock.stop("inner")  # 7
    clock.stop("outer")  # 15
    clock.run(False)  # 31
    clock.start("after")
    assert dict(clock.seconds) == {"before": 1.0 + 16.0, "outer": 2.0 + 8.0, "inner": 4.0}


def test_parts_and_rest_sum_to_the_step_and_the_rest_is_named() -> None:
    seconds = {
        "[_TrainingEpochLoop].train_dataloader_next": 0.5,
        "forward": 2.0,
        "[Strategy]SingleDevice.backward": 3.0,
        "[Strategy]SingleDevice.training_step": 1.0,
        "[LightningModule]Small.optimizer_step": 1.25,
        "[Callback]Throughput.on_train_batch_end": 0.75,
        "run_training_epoch": 1.5,
    }
    table = parts_table(seconds, steps=10, warm_up=2)
    assert table.startswith("A training step, mean of 10 after the first 2: 1000.00 ms\n")
    found = {name: (ms, share) for ms, share, name in re.findall(r" ([\d.]+) ms +([\d.]+)%  (.+)", table)}
    assert list(found)[:6] == list(dict.fromkeys(PARTS.values()))
    assert found["data"] == ("50.000", "5.00")
    assert found["rest"] == ("225.000", "22.50")
    assert list(found)[6:] == ["run_training_epoch", "[Callback]Throughput.on_train_batch_end"]
    assert sum(float(found[part][0]) for part in set(PARTS.values())) == 1000


def test_hooks_that_cost_little_share_a_line() -> None:
    seconds = {f"hook_{i}": 1.0 + i for i in range(17)}
    table = parts_table(seconds, steps=1, warm_up=2)
    assert re.search(r" 3000\.000 ms +[\d.]+%  2 others\n", table)
    assert "hook_2\n" in table
    assert "hook_1\n" not in table


def test_a_profile_says_where_a_step_spends_its_time(tmp_path: Path) -> None:
    profile = trained(tmp_path, batches=11)
    seconds = dict(profile.clock.seconds)
    assert seconds["forward"] >= 5 * 0.02
    assert any(action.endswith(".backward") for action in seconds)
    table = (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert table.startswith("A training step, mean of 5 after the first 2:")
    assert all(f"%  {part}\n" in table for part in PARTS.values())
    assert "aten::" in table
    assert "Self CPU" in table


def test_a_run_that_ends_early_has_its_table_of_fewer_steps(tmp_path: Path) -> None:
    trained(tmp_path, batches=5)
    assert "mean of 3 after the first 2:" in (tmp_path / "profile.txt").read_text(encoding="utf-8")


def test_a_run_that_is_too_short_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, batches=2)
    assert "callback=profile begins after 2 steps, and the training had 2" in caplog.text
    assert not (tmp_path / "profile.txt").exists()


def test_two_profilers_of_one_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"callback=profile and trainer\.profiler measure the same steps"):
        trained(tmp_path, batches=2, profiler="simple")


def test_a_run_is_profiled_if_asked_into_its_folder(tmp_path: Path) -> None:
    overrides = ["callback=[seeding,profile]", "trainer.accelerator=cpu", f"paths.run_dir={tmp_path}"]
    config: Any = OmegaConf.masked_copy(composed(*overrides), ["callback", "trainer", "paths", "seed"])
    trainer = build_trainer(OmegaConf.to_container(config, resolve=True), tmp_path)
    found = [callback for callback in trainer.callbacks if isinstance(callback, Profile)]
    assert [callback.file for callback in found] == [tmp_path / "profile.txt"]
