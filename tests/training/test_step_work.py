"""What a training step does beside its mathematics: when it waits for the device, and what it holds on to."""

from __future__ import annotations

import csv
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import rich
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from small_run import run_here

from seq2seq_attn.callback.skip_nonfinite import READ_EVERY
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.translation_module import TranslationModule

WAITS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
EVERY = 7  # steps between two that are logged
CALLBACKS = "callback=[seeding,gradient_norm,skip_nonfinite,throughput,checkpoint,autosave,early_stopping,progress]"
TRANSFORMER = (
    "model=transformer", "attention=multihead", "model.encoder.num_layers=1", "model.decoder.num_layers=1",
    "feed_forward.ff_dim=13", "batch_tokens=120", "model.dropout=0.0",
)  # fmt: skip
witnesses: list[Any] = []


class Waits(pl.Callback):
    """Counts, by step, what takes a number out of a tensor; on a GPU each would wait until all before it is done."""

    def __init__(self) -> None:
        self.by_step: Counter[int] = Counter()
        self.positions: dict[int, list[str]] = {}
        self._methods = {name: getattr(torch.Tensor, name) for name in WAITS}
        witnesses.append(self)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._release()
        step = trainer.global_step
        for name, method in self._methods.items():

            def counted(tensor: torch.Tensor, *given: Any, method: Any = method, **named: Any) -> Any:
                self.by_step[step] += 1
                frames = traceback.extract_stack(limit=7)[:-1]
                self.positions.setdefault(step, []).append(" > ".join(frame.name for frame in frames))
                return method(tensor, *given, **named)

            setattr(torch.Tensor, name, counted)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._release()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._release()

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._release()

    def _release(self) -> None:
        for name, method in self._methods.items():
            setattr(torch.Tensor, name, method)


class Shown(pl.Callback):
    """Loss and speed on the bar, by step."""

    def __init__(self) -> None:
        self.by_step: list[tuple[float | None, str | None]] = []
        witnesses.append(self)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        metrics = trainer.progress_bar_callback.get_metrics(trainer, pl_module)
        self.by_step.append((metrics.get("loss"), metrics.get("tokens/s")))


class Held(pl.Callback):
    """Whether a gradient is there when the next batch comes, by batch."""

    def __init__(self) -> None:
        self.by_batch: list[bool] = []
        witnesses.append(self)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.by_batch.append(any(p.grad is not None for p in pl_module.parameters()))


@pytest.fixture
def witnessed(tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What a witness has seen in a run of one epoch, which is not validated; a bar is drawn as on a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(rich, "_console", None)  # the one that is made now would stay coloured

    def run(kind: type, *overrides: str) -> Any:
        witnesses.clear()
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        target = f"+callback.witness._target_={__name__}.{kind.__name__}"
        bar = "trainer.enable_progress_bar=true"
        unread = [f"trainer.limit_{split}_batches=0" for split in ("val", "test")]
        run_here(tmp_path / "run", *pairs, *unread, CALLBACKS, bar, target, *overrides)
        (witness,) = witnesses
        return witness

    return run


def test_a_step_that_is_not_logged_waits_for_nothing(witnessed: Callable[..., Any]) -> None:
    steps = 2 * EVERY + 2
    seen = witnessed(Waits, *TRANSFORMER, f"trainer.max_steps={steps}", f"trainer.log_every_n_steps={EVERY}")
    logged = {step for step in range(steps) if (step + 1) % EVERY == 0}
    looked = {READ_EVERY - 1}  # at what the device has skipped
    assert set(seen.by_step) == logged | looked, seen.positions


@pytest.mark.slow
def test_the_bar_shows_what_was_logged_last(witnessed: Callable[..., Any], tmp_path: Path) -> None:
    steps = 2 * EVERY + 2
    shown = witnessed(Shown, *TRANSFORMER, f"trainer.max_steps={steps}", f"trainer.log_every_n_steps={EVERY}").by_step
    by_step = dict(enumerate(losses(tmp_path / "run" / "metrics.csv"), start=1))
    assert [loss for loss, _ in shown] == [None] * (EVERY - 1) + [by_step[1]] * EVERY + [by_step[2]] * 3
    assert all((speed is None) == (loss is None) for loss, speed in shown)


@pytest.mark.parametrize(
    ("length", "batch_tokens"), [("trainer.max_epochs=2", 100_000), ("trainer.max_steps=1", 200)], ids=str
)
def test_a_short_training_logs_its_losses(
    witnessed: Callable[..., Any], tmp_path: Path, length: str, batch_tokens: int
) -> None:
    """Two epochs of one update, and one update of an epoch of many."""
    witnessed(Waits, *TRANSFORMER, length, "trainer.log_every_n_steps=1000", f"batch_tokens={batch_tokens}")
    assert len(list(losses(tmp_path / "run" / "metrics.csv"))) == int(length[-1])


@pytest.mark.slow
def test_gradients_are_gone_when_the_next_batch_comes_unless_they_accumulate(witnessed: Callable[..., Any]) -> None:
    assert witnessed(Held, "trainer.max_steps=3").by_batch == [False] * 3
    accumulated = ("trainer.max_steps=2", "trainer.accumulate_grad_batches=2", "batch_tokens=200")
    assert witnessed(Held, *accumulated).by_batch == [False, True] * 2


@pytest.mark.slow
def test_bfloat16_trains_nearly_as_float32(witnessed: Callable[..., Any], tmp_path: Path) -> None:
    for precision in ("32-true", "bf16-mixed"):
        witnessed(Held, *TRANSFORMER, "trainer.max_steps=5", f"trainer.precision={precision}")
        (tmp_path / "run" / "metrics.csv").rename(tmp_path / f"{precision}.csv")
    (full, half) = (losses(tmp_path / f"{name}.csv") for name in ("32-true", "bf16-mixed"))
    assert len(full) == len(half) == 5
    assert full != half
    assert half == pytest.approx(full, rel=0.01)


class Clipped(pl.Callback):
    """The norm of all gradients and their largest number, as the optimizer reads them, by update."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.largest: list[float] = []
        witnesses.append(self)

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        trainer.optimizers[0].register_step_post_hook(self.read)  # it computes them itself

    def read(self, optimizer: Any, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.norms.append(torch.nn.utils.get_total_norm(gradients).item())
        self.largest.append(max(gradient.abs().max().item() for gradient in gradients))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", pytest.param("bf16-mixed", marks=pytest.mark.slow)])
def test_gradients_are_clipped_before_the_optimizer_reads_them(witnessed: Callable[..., Any], precision: str) -> None:
    given = (*TRANSFORMER, "trainer.max_steps=3", f"trainer.precision={precision}")
    assert min(witnessed(Clipped, *given, "trainer.gradient_clip_val=null").norms) > 0.01
    norms = witnessed(Clipped, *given, "trainer.gradient_clip_val=0.001").norms
    assert norms == pytest.approx([0.001] * 3, rel=0.01)
    by_value = ("trainer.gradient_clip_val=0.0001", "trainer.gradient_clip_algorithm=value")
    assert witnessed(Clipped, *given, *by_value).largest == pytest.approx([0.0001] * 3, rel=0.01)


def losses(file: Path) -> list[float]:
    with file.open(encoding="utf-8", newline="") as stream:
        return [float(row["train/loss"]) for row in csv.DictReader(stream) if row.get("train/loss")]


def test_float16_says_that_it_cannot_clip_what_is_fused() -> None:
    precision = MixedPrecision("16-mixed", "cuda", torch.amp.GradScaler("cpu"))
    module: Any = SimpleNamespace(trainer=SimpleNamespace(precision_plugin=precision))
    fused = torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))], fused=True)
    sentence = (
        "trainer.precision=16-mixed scales gradients, .* use optimizer.fused=false, or trainer.precision=bf16-mixed"
    )
    with pytest.raises(UserError, match=sentence):
        TranslationModule.configure_gradient_clipping(module, fused, 1.0, "norm")
