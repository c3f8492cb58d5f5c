"""A run of seconds on pairs of our own, in this process or in one of its own, and what it leaves."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl
import torch
from configs import ROOT, compose_train

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.training import provenance, run
from seq2seq_attn.training.run import train

provenance.commit = cache(provenance.commit)  # of the checkout, which two processes of git tell
begun: list[int] = []  # of each run of this process that was not complete: the updates it began after; 0: it began anew

TEXT = "the cat sees a red house and small dogs hear some birds where is my old book we like water"
WORDS = TEXT.split()
SPLITS = ("train", "val", "test")
TIMED = {"train/tokens_per_second", "train_seconds", "tokens_per_second", "decode_sentences_per_second"}
TIMED |= {"peak_memory_bytes", "validation_seconds", "validation_share"}
CALLBACKS = "callback=[seeding,throughput,checkpoint,autosave,stop_on_signal,early_stopping,validation_line]"
SMALL = [
    "data=parallel", "tokenizer.vocab_size=40", "tokenizer.sampling_alpha=0.3", "model=conv", "attention=hard",
    "model.embedding_dim=12", "model.encoder.dim=12", "model.decoder.dim=12", "model.dropout=0.3",
    "model.encoder.num_layers=1", "model.decoder.num_layers=1",
    "batch_tokens=400", "optimizer.lr=0.05",
    "trainer.max_epochs=3", "trainer=cpu", "trainer.enable_progress_bar=false",
    "trainer.log_every_n_steps=1", "num_threads=1", CALLBACKS,
]  # fmt: skip


def write_pairs(folder: Path) -> list[str]:
    """Write three sets of pairs, and return the overrides that name them."""
    for name, first, count in zip(SPLITS, (0, 200, 300), (83, 23, 7), strict=True):
        lines = []
        for number in range(first, first + count):
            words = Random(number).sample(WORDS, 3 + number % 7)
            lines.append(f"{' '.join(words)}\tthe cat sees a {words[0]} house {words[-1]}\n")
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return name_pairs(folder)


def name_pairs(folder: Path) -> list[str]:
    """Return the overrides that name what `write_pairs` has written."""
    return [*(f"data.{name}={folder / f'{name}.tsv'}" for name in SPLITS), f"paths.cache_dir={folder / 'cache'}"]


def run_here(folder: Path, *overrides: str) -> dict[str, Any]:
    """What train.py does, without Hydra's application around it."""
    folder.mkdir(exist_ok=True)
    given = [f"paths.run_dir='{folder}'", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]
    searches = any(override.startswith("search") for override in overrides)
    short = [] if searches else ["search.limits.max_length=12"]  # of 16 or more, that a small model writes to the limit
    return train(compose_train(*SMALL, *short, *given, *overrides))


class Begins(pl.Callback):
    """Writes into `begun` what Lightning has restored, which a run that starts anew has not though it ends the same."""

    def __init__(self) -> None:
        self.is_seen = False

    def _see(self, trainer: pl.Trainer) -> None:
        if not self.is_seen:
            begun.append(trainer.global_step)
        self.is_seen = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._see(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._see(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._see(trainer)


def build_watched(*given: Any, build: Any = run.build_trainer, **named: Any) -> pl.Trainer:
    trainer: Any = build(*given, **named)
    trainer.callbacks.insert(0, Begins())
    return trainer


run.build_trainer = build_watched


def stopped_and_resumed(folder: Path, options: list[str], *stops: tuple[str, int]) -> list[int]:
    """Run, die at each of the stops in turn, resume after each; return the updates that each part began after."""
    begun.clear()
    for hook, step in stops:
        killer = f"+callback.killed={{_target_:small_run.Killed,hook:{hook},step:{step}}}"
        with pytest.raises(KilledError):
            run_here(folder, "resume=auto", *options, killer)
    run_here(folder, "resume=auto", *options)
    return list(begun)


def start(folder: Path, *overrides: str, seconds: float = 0.0) -> subprocess.Popen[bytes]:
    """The command itself, which begins a session; what it says goes into said.txt in the folder."""
    folder.mkdir(exist_ok=True)
    slow = f"{{_target_:small_run.Slow,seconds:{seconds},file:{folder / 'told.txt'}}}"
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [
                sys.executable,
                "train.py",
                *SMALL,
                f"hydra.run.dir={folder}",
                "resume=auto",
                f"+callback.slow={slow}",
                *overrides,
            ],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=listen_to_sigint,
            env=os.environ | {"COLUMNS": "120", "PYTHONPATH": with_tests(os.environ.get("PYTHONPATH"))},
        )


def with_tests(path: str | None) -> str:
    """Return a PYTHONPATH, to which the tests are added."""
    return os.pathsep.join([str(ROOT / "tests"), *([path] if path else [])])


def listen_to_sigint() -> None:
    """A test that is itself in the background of a script has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def rows(folder: Path) -> list[dict[str, str]]:
    """Of metrics.csv, what a clock has measured left out."""
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(file)]


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return read_checkpoint(folder / "checkpoints" / name)["state_dict"]


def results(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name not in TIMED}


def assert_same_run(folder: Path, other: Path) -> None:
    """Every logged number, every weight and every translation, bit for bit."""
    assert rows(folder) == rows(other)
    assert results(folder) == results(other)
    names = [{path.name for path in run.glob("checkpoints/*.ckpt")} - {"previous.ckpt"} for run in (folder, other)]
    assert names[0] == names[1]
    for name in names[0]:
        ours, theirs = weights(folder, name), weights(other, name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for name in ("tsv", "hypotheses", "references"):
        file = f"translations.{name}"
        assert (folder / file).read_bytes() == (other / file).read_bytes()


class KilledError(Exception):
    pass


class Killed(pl.Callback):
    """At one position of a run: as by SIGKILL, with nothing saved on the way out, or by a signal to this process."""

    def __init__(self, *, hook: str, step: int, batch: int = 0, signum: int | None = None) -> None:
        self.position, self.signum = (hook, step, batch), signum

    def _die(self, hook: str, trainer: pl.Trainer, batch: int = 0) -> None:
        if self.position != (hook, trainer.global_step, batch):
            return
        if self.signum is None:
            raise KilledError
        os.kill(os.getpid(), self.signum)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._die("batch_start", trainer)

    def on_before_backward(self, trainer: pl.Trainer, *args: Any) -> None:
        self._die("backward", trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        self._die("batch_end", trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._die("validation_start", trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, module: Any, batch: Any, index: int) -> None:
        self._die("validation", trainer, index)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._die("validation_end", trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._die("epoch_end", trainer)

    def on_test_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        self._die("test", trainer)


class Stopped(pl.Callback):
    """Asks the training to stop after a batch, as a limit of time does."""

    def __init__(self, *, epoch: int, batch: int) -> None:
        self.position = epoch, batch

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == self.position:
            trainer.should_stop = True


class Slow(pl.Callback):
    """A batch takes a while; told are its rank, process, stage, step, and in training its loss to the last bit."""

    def __init__(self, *, seconds: float, file: str) -> None:
        self.seconds, self.file = seconds, Path(file)

    def _tell(self, trainer: pl.Trainer, stage: str, loss: float = 0.0) -> None:
        with self.file.open("a") as file:
            file.write(f"{trainer.global_rank} {os.getpid()} {stage} {trainer.global_step} {loss.hex()}\n")
        time.sleep(self.seconds)

    def on_before_backward(self, trainer: pl.Trainer, pl_module: Any, loss: torch.Tensor) -> None:
        self._tell(trainer, "train", loss.item())

    def on_validation_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        self._tell(trainer, "validation" if trainer.state.fn == "fit" else "after")


class Told(NamedTuple):
    rank: int
    process: int
    stage: str
    step: int
    loss: str


def told(folder: Path) -> list[Told]:
    """What `Slow` has told so far."""
    file = folder / "told.txt"
    lines = [line.split() for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    return [Told(int(rank), int(process), stage, int(step), loss) for rank, process, stage, step, loss in lines]


def said(folder: Path) -> str:
    return (folder / "said.txt").read_text(encoding="utf-8", errors="replace")


def of_session(leader: int) -> list[int]:
    """Processes that are left of those that a command has started, itself among them; the dead do not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
