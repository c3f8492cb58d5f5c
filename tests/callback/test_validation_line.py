"""A validation is one aligned line, and so is the reason why a training ends."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import EarlyStopping, Timer
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from small_run import run_here

from seq2seq_attn.callback.validation_line import ValidationLine, reason


@pytest.mark.usefixtures("quiet")
def test_a_validation_is_a_line_of_80_characters_with_the_figures_of_metrics_csv(
    tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seq2seq_attn.callback")
    given = ["trainer.max_epochs=12", "trainer.max_steps=14", "trainer.log_every_n_steps=7", "scheduler=constant"]
    run_here(tmp_path, *pairs, *given, "trainer.limit_test_batches=0")
    header, *lines, end = caplog.messages
    assert header.split() == ["epoch", "step", "loss", "val/loss", "val/bleu", "lr", "tokens/s", "left"]
    assert len({len(line) for line in (header, *lines)}) == 1
    assert len(header) <= 80
    with (tmp_path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    trained, validated = ([row for row in table if row[name]] for name in ("train/loss", "val/loss"))
    assert [row["epoch"] for row in (*trained, *validated)] == ["1", "2"] * 2
    for number, (line, train, val) in enumerate(zip(lines, trained, validated, strict=True), start=1):
        assert line.startswith(f"epoch  {number}/12  ")
        figures = [f"{float(x):#.4g}" for x in (train["train/loss"], val["val/loss"], val["val/bleu"])]
        assert line.split()[2:6] == [str(7 * number), *figures]
        assert line.split()[7] == f"{float(train['train/tokens_per_second']):,.0f}"
    assert lines[-1].endswith(" 0:00:00")
    assert [row["lr"] for row in trained] == [str(float(torch.tensor(0.05)))] * 2
    assert end == "The training ends in epoch 2 after step 14: trainer.max_steps=14 is reached"


@pytest.mark.parametrize("first", [0, 100])
def test_the_time_left_is_that_of_the_updates_to_go_at_the_pace_of_this_process(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = ValidationLine()
    callback._first_step, callback._began = first, 1000.0
    monkeypatch.setattr("time.monotonic", lambda: 1020.0)
    trainer = SimpleNamespace(state=SimpleNamespace(fn="fit"), global_step=first + 10, callbacks=[])
    assert callback._time_left(trainer, SimpleNamespace(total_steps=first + 15)) == "0:00:10"
    assert callback._time_left(trainer, SimpleNamespace(total_steps=float("inf"))) == "-"


def ended(**entries: Any) -> Any:
    """A trainer whose training is over."""
    default = {"max_steps": -1, "global_step": 5, "max_epochs": 9, "current_epoch": 3, "callbacks": []}
    default["limit_train_batches"] = 1.0
    return SimpleNamespace(**default | entries)


def stopped(why: EarlyStoppingReason, message: str) -> EarlyStopping:
    callback = EarlyStopping("val/bleu", mode="max")
    callback.wait_count, callback.best_score = 10, torch.tensor(34.1)
    callback.stopping_reason, callback.stopping_reason_message = why, message
    return callback


def test_the_reason_is_the_limit_that_is_reached(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seq2seq_attn.callback")
    timer = Timer("00:00:00:01")
    timer.load_state_dict({"time_elapsed": {"train": 75.0}})
    patience = stopped(EarlyStoppingReason.PATIENCE_EXHAUSTED, "any")
    diverged = stopped(
        EarlyStoppingReason.NON_FINITE_METRIC, "val/bleu = nan is not finite. Signaling Trainer to stop."
    )
    cases = (
        (ended(max_epochs=3, callbacks=[patience]), "trainer.max_epochs=3 is reached"),
        (ended(max_epochs=-1, max_steps=5), "trainer.max_steps=5 is reached"),
        (ended(callbacks=[timer]), "trainer.max_time is reached, after 0:01:15"),
        (ended(callbacks=[Timer("00:00:00:00")]), "trainer.max_time is reached, after 0:00:00"),
        (
            ended(callbacks=[Timer(), patience]),
            "early stopping, val/bleu has not improved in 10 validations; its best is 34.10",
        ),
        (ended(limit_train_batches=0), "trainer.limit_train_batches=0 leaves nothing to train on"),
        (ended(callbacks=[diverged]), "early stopping, val/bleu = nan is not finite."),
        (ended(callbacks=[EarlyStopping("val/bleu")]), "a callback has stopped it"),
    )
    for trainer, sentence in cases:
        assert reason(trainer) == sentence
    cut = "trainer.max_time is reached, after 0:01:15, before the schedule of the learning rate ends, at step 1,200"
    ValidationLine().on_fit_end(ended(callbacks=[timer]), SimpleNamespace(epoch_number=4, planned_steps=1200))
    assert caplog.messages == [f"The training ends in epoch 4 after step 5: {cut}"]
    assert reason(ended(callbacks=[timer]), planned_steps=5) == "trainer.max_time is reached, after 0:01:15"


def test_a_failure_is_a_line_and_a_signal_is_not(caplog: pytest.LogCaptureFixture) -> None:
    trainer, module = ended(state=SimpleNamespace(fn="fit")), SimpleNamespace(epoch_number=4, total_steps=27)
    for error in (SystemExit(143), ValueError("one\ntwo"), RuntimeError()):
        ValidationLine().on_exception(trainer, module, error)
    began = ValidationLine()
    began.on_train_start(trainer, module)
    began.on_exception(trainer, module, RuntimeError("late"))
    where, late = "The training does not start", "The training fails in epoch 4 after step 5: late"
    assert caplog.messages == [f"{where}: one", f"{where}: RuntimeError", late]
