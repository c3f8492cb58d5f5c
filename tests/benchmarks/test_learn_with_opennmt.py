"""Timed training and translation with OpenNMT-py, in which stand-ins train and translate."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from sentencepiece import SentencePieceTrainer

from scripts.benchmarks import learn_with_opennmt as script

SETTINGS = {
    "seed": 1, "source": "en", "target": "fr", "model": "rnn", "dim": 16, "dropout": 0.2, "lr": 0.003, "clip": 1.0,
    "smoothing": 0.1, "batch_tokens": 512, "beam_size": 4, "validation_updates": 7, "average_decay": 0.25,
    "sentences": 20, "tokens": 30, "layers": 2, "heads": 4, "ff_dim": 32, "warmup_steps": 9, "decay_after": 11,
    "decay_every": 3,
}  # fmt: skip
CATS = [f"le chat numéro {number} dort bien ici" for number in range(20)]


class Trainer:
    """Its loop: an update after another."""

    saved: list[tuple[int, str]]
    updates: int

    def _gradient_accumulation(self, *_: Any) -> None:
        type(self).updates += 1
        time.sleep(0.01)

    def train(self) -> None:
        saver = SimpleNamespace(save=lambda step, moving_average: self.saved.append((step, moving_average)))
        self.model_saver, self.moving_average = saver, "average"
        for step in range(1, 1000):
            self.optim = SimpleNamespace(training_step=step)
            self._gradient_accumulation("batches", 1.0, "total", "report")


@pytest.fixture
def opennmt(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    seen = SimpleNamespace(trainer=type("Trainer", (Trainer,), {**vars(Trainer), "saved": [], "updates": 0}))
    names = ("", ".bin", ".bin.train", ".bin.translate", ".trainer")
    modules = {name: ModuleType(f"onmt{name}") for name in names}

    def train(options: argparse.Namespace) -> None:
        seen.config = yaml.safe_load(Path(options.config).read_text())
        modules[".trainer"].Trainer().train()

    def translate(options: argparse.Namespace) -> None:
        """Write pieces of one letter, the worse the further the checkpoint is from update 20."""
        step = int(Path(options.model).stem.rpartition("_")[2])
        source = Path(options.src).read_bytes().decode().splitlines()
        seen.sources[Path(options.src).stem] = source
        every = max(2, 12 - abs(20 - step)) if options.beam_size == 1 else 10**6
        words = [CATS[number] if number % every else "le chat" for number in range(len(source))]
        pieces = [" ".join("▁" + line.replace(" ", "▁")) for line in words]
        Path(options.output).write_text("".join(f"{line}\n" for line in pieces), encoding="utf-8")
        seen.calls.append((step, Path(options.src).stem, options.beam_size))

    def parser(*names: str) -> argparse.ArgumentParser:
        made = argparse.ArgumentParser()
        for name in names:
            made.add_argument(f"-{name}", type=int if name.endswith("size") else str)
        return made

    seen.sources, seen.calls = {}, []
    modules[".bin.train"].train, modules[".bin.train"]._get_parser = train, lambda: parser("config")
    modules[".bin.translate"].translate = translate
    modules[".bin.translate"]._get_parser = lambda: parser("model", "src", "output", "beam_size", "batch_size")
    modules[".trainer"].Trainer = seen.trainer
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"onmt{name}", module)
    monkeypatch.setattr(script, "mock_unused", lambda: None)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "vocabulary.txt").write_text("<pad>\n<unk>\n<s>\n</s>\na\nb\n")
    for name in ("val.fr", "test.fr", "val.en", "test.en"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in CATS), encoding="utf-8")
    SentencePieceTrainer.train(
        input=str(tmp_path / "val.en"), model_prefix=str(tmp_path / "joint"), vocab_size=30, minloglevel=2
    )
    return tmp_path


def test_the_clock_ends_it_after_a_whole_update_which_is_saved_with_its_average(
    opennmt: SimpleNamespace, folder: Path
) -> None:
    began = time.monotonic()
    script.main(folder, 0.3 / 60)
    assert 0.3 <= time.monotonic() - began < 5
    assert 1 < opennmt.trainer.updates < 1000
    assert opennmt.trainer.saved == [(opennmt.trainer.updates, "average")]


def test_what_it_reads_are_the_settings_with_a_schedule(opennmt: SimpleNamespace, folder: Path) -> None:
    script.main(folder, 0.0)
    config = opennmt.config
    assert (config["learning_rate"], config["save_checkpoint_steps"], config["average_decay"]) == (0.003, 7, 0.25)
    assert (config["start_decay_steps"], config["decay_steps"], config["decay_method"]) == (11, 3, "none")
    assert (folder / "opennmt.vocabulary").read_text().split() == ["a", "b"]
    (folder / "settings.json").write_text(json.dumps(SETTINGS | {"model": "transformer"}))
    script.main(folder, 0.0)
    config = opennmt.config
    assert (config["decay_method"], config["warmup_steps"], config["param_init_glorot"]) == ("noam", 9, True)
    assert config["param_init"] == 0


def test_each_checkpoint_translates_the_validation_set_and_the_best_one_the_test(
    opennmt: SimpleNamespace, folder: Path
) -> None:
    (folder / "model").mkdir()
    for step in (9, 20, 100):
        (folder / f"model_step_{step}.pt").touch()
    script.main(folder)
    assert opennmt.calls == [(9, "val", 1), (20, "val", 1), (100, "val", 1), (20, "test", 4)]
    assert "".join(opennmt.sources["val"]).replace(" ", "").replace("▁", " ").split() == " ".join(CATS).split()
    tests = (folder / "model" / "best.hyps.test").read_bytes().decode()
    assert tests == "".join(f"{line}\n" for line in ["le chat", *CATS[1:]])
    assert (folder / "model" / "100.hyps").read_bytes().decode().count("le chat\n") == 10
