"""Validation on a share of its set during training: which sentences, what is said, and that a stop changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from small_run import (
    KilledError,
    assert_same_run,
    begun,
    results,
    rows,
    run_here,
    stopped_and_resumed,
    weights,
    write_pairs,
)  # fmt: skip

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.comparison.read import curve_of, read_log

SHARE = ["val_sentences=5", "trainer.max_epochs=2"]
seen: list[list[int]] = []


class Seen(pl.Callback):
    """Which rows each validation reads."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        seen.append([])

    def on_validation_batch_start(self, trainer: pl.Trainer, module: Any, batch: Any, index: int) -> None:
        seen[-1] += batch.index.tolist()


class Stops(pl.Callback):
    """Ends a training after update 4, as a time limit may."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        trainer.should_stop = trainer.global_step == 4


@pytest.fixture(scope="module")
def shared(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """A run of two epochs, and what its validations have read."""
    seen.clear()
    folder = tmp_path_factory.mktemp("shared")
    run_here(folder, *pairs, *SHARE, f"+callback.seen._target_={__name__}.Seen")
    return folder, list(seen)


def test_every_validation_reads_the_same_share_and_the_best_is_scored_on_all(
    shared: tuple[Path, list[list[int]]],
) -> None:
    folder, read = shared
    assert [sorted(of) for of in read] == [[0, 4, 9, 13, 18]] * 2  # of 23, in each of two epochs
    found = results(folder)
    assert {"val/bleu", "val/loss", "val/ppl", "val/bleu_signature", "test/bleu"} <= set(found)
    assert len((folder / "translations_val.tsv").read_text(encoding="utf-8").splitlines()) == 23
    assert 0 < json.loads((folder / "results.json").read_text(encoding="utf-8"))["validation_share"] < 1
    # the score on all is no point of the curve
    assert len([row for row in rows(folder) if row.get("val/bleu")]) == 2


@pytest.mark.slow
def test_a_run_killed_within_such_a_validation_and_at_its_end_resumes_exactly(
    shared: tuple[Path, list[list[int]]], pairs: list[str], tmp_path: Path
) -> None:
    options = [*pairs, *SHARE, "callback.autosave.every_steps=2"]  # without, nothing would be saved before the stops
    stops = [(hook, 7) for hook in ("validation", "validation_end")]
    assert stopped_and_resumed(tmp_path / "parts", options, *stops) == [0, 6, 6]
    assert_same_run(shared[0], tmp_path / "parts")


@pytest.mark.slow
def test_the_size_of_its_batches_changes_nothing_that_is_trained_and_a_resumed_run_may_change_it(
    shared: tuple[Path, list[list[int]]], pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen.clear()
    watched = f"+callback.seen._target_={__name__}.Seen"
    killed = "+callback.killed={_target_:small_run.Killed,hook:backward,step:9}"
    with pytest.raises(KilledError):
        run_here(tmp_path, *pairs, *SHARE, "eval_batch_tokens=30", watched, killed)
    with caplog.at_level("INFO", "seq2seq_attn"):
        run_here(tmp_path, *pairs, *SHARE, "eval_batch_tokens=90", watched, "resume=auto")
    assert begun[-1] == 7
    assert not [line for line in caplog.messages if "eval_batch_tokens" in line]  # it is no other run
    assert [sorted(of) for of in seen] == [[0, 4, 9, 13, 18]] * 2
    names = ("train/loss", "lr", "step")
    ours, theirs = ([[row.get(name) for name in names] for row in rows(folder)] for folder in (tmp_path, shared[0]))
    assert ours == theirs
    ours, theirs = (weights(folder, "last.ckpt") for folder in (tmp_path, shared[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    ours, theirs = results(tmp_path), results(shared[0])
    assert ours["test/loss"] == pytest.approx(theirs["test/loss"], rel=1e-5)


@pytest.mark.parametrize("tested", ["null", "0"])
def test_a_run_without_any_validation_ends_with_its_last_weights(tested: str, pairs: list[str], tmp_path: Path) -> None:
    limits = ("trainer.limit_val_batches=0", f"trainer.limit_test_batches={tested}", "trainer.max_epochs=1")
    found = run_here(tmp_path / "run", *pairs, *limits)
    assert found["steps"] > 0
    assert ("test/bleu" in found) == (tested == "null")
    checkpoints = tmp_path / "run" / "checkpoints"
    states = [read_checkpoint(checkpoints / f"{name}.ckpt")["state_dict"] for name in ("best", "last")]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_last_validation_stands_at_the_last_update(tmp_path: Path) -> None:
    run_here(tmp_path / "run", *write_pairs(tmp_path), "trainer.max_steps=5", "trainer.val_check_interval=2")
    steps = [int(row["step"]) for row in rows(tmp_path / "run") if row.get("val/loss")]
    assert steps == [1, 3, 4]  # counted from 0
    assert [int(x) for x, _ in curve_of(read_log(tmp_path / "run" / "metrics.csv"), "val/loss")] == [2, 4, 5]


def test_an_update_that_a_time_limit_makes_the_last_is_logged_with_its_epoch(pairs: list[str], tmp_path: Path) -> None:
    limits = [f"trainer.limit_{name}_batches={count}" for name, count in (("train", 3), ("val", 0), ("test", 0))]
    run_here(tmp_path, *pairs, *limits, "trainer.log_every_n_steps=9", f"+callback.stops._target_={__name__}.Stops")
    assert [(row["epoch"], row["step"]) for row in rows(tmp_path)] == [("1", "2"), ("2", "3")]
