"""JoeyNMT's training by the clock, with a trainer instead that counts as its own does."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch.optim.lr_scheduler import ReduceLROnPlateau

from scripts.benchmarks import learn_with_joeynmt as script

SETTINGS = {
    "seed": 1, "source": "en", "target": "fr", "model": "rnn", "dim": 16, "dropout": 0.2, "lr": 0.003, "clip": 1.0,
    "smoothing": 0.1, "batch_tokens": 512, "beam_size": 4, "validation_updates": 7,
}  # fmt: skip


class TrainManager:
    """Its loop: an update, until the manager's own sign says that it was the last."""

    last: TrainManager

    def __init__(self) -> None:
        self.stats = SimpleNamespace(is_max_update=False)
        self.updates, self.validated = 0, []
        TrainManager.last = self

    def _train_step(self, batch: Any) -> int:
        self.updates += 1
        time.sleep(0.01)
        return batch

    def train_and_validate(self, train_data: Any, valid_data: Any) -> None:
        while not self.stats.is_max_update and self.updates < 1000:
            assert self._train_step(3) == 3

    def _validate(self, valid_data: Any) -> None:
        self.validated.append((valid_data, self.updates))


@pytest.fixture
def joeynmt(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    modules = {name: ModuleType(f"joeynmt{name}") for name in ("", ".builders", ".config", ".training")}
    modules[""].builders = modules[".builders"]
    modules[".config"].load_config = lambda file: yaml.safe_load(file.read_text())
    modules[".training"].TrainManager = type("TrainManager", (TrainManager,), dict(vars(TrainManager)))

    def train(rank: int, world_size: int | None, cfg: dict[str, Any]) -> None:
        modules[".training"].cfg = cfg
        modules[".training"].TrainManager().train_and_validate("train", "val")

    modules[".training"].train = train
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"joeynmt{name}", module)
    return modules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "vocabulary.txt").write_text("<pad>\n<unk>\n<s>\n</s>\na\nb\n")
    return tmp_path


def test_the_clock_stops_it_and_what_it_then_is_is_validated(joeynmt: dict[str, ModuleType], folder: Path) -> None:
    began = time.monotonic()
    script.main(folder, 0.3 / 60)
    taken = time.monotonic() - began
    trained = TrainManager.last
    assert 1 < trained.updates < 1000
    assert 0.3 <= taken < 5
    assert trained.validated == [("val", trained.updates)]


def test_what_it_reads_are_the_settings(joeynmt: dict[str, ModuleType], folder: Path) -> None:
    script.main(folder, 0.0)
    config = joeynmt[".training"].cfg
    training = config["training"]
    assert (training["learning_rate"], training["validation_freq"], training["batch_size"]) == (0.003, 7, 256)
    assert (training["scheduling"], training["early_stopping_metric"]) == ("plateau", "bleu")
    assert config["testing"]["beam_size"] == 4
    assert (config["data"]["test"], config["data"]["dev"]) == (str(folder / "test"), str(folder / "val"))
    assert config["model"]["decoder"]["attention"] == "bahdanau"
    assert (config["model"]["embed_initializer"], config["model"]["embed_init_weight"]) == ("normal", 0.1)
    tokens = (folder / "joeynmt.vocabulary").read_text().split()
    assert tokens == ["<unk>", "<pad>", "<s>", "</s>", "a", "b"]


def test_a_transformer_has_the_schedule_of_its_recipes(joeynmt: dict[str, ModuleType], folder: Path) -> None:
    sizes = {"model": "transformer", "layers": 2, "heads": 4, "ff_dim": 32, "lr": 0.5, "warmup_steps": 9}
    (folder / "settings.json").write_text(json.dumps(SETTINGS | sizes))
    script.main(folder, 0.0)
    training = joeynmt[".training"].cfg["training"]
    assert training["scheduling"] == "noam"
    assert (training["learning_rate_factor"], training["learning_rate_warmup"]) == (0.5, 9)


def test_its_schedule_works_with_a_torch_that_has_no_verbose(joeynmt: dict[str, ModuleType], folder: Path) -> None:
    script.main(folder, 0.0)
    optimizer = torch.optim.Adam([torch.zeros(2, requires_grad=True)], lr=0.1)
    schedule = joeynmt[".builders"].ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0, verbose=False)
    assert isinstance(schedule, ReduceLROnPlateau)
    for _ in range(2):
        schedule.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
