"""A run that was stopped anywhere and resumed is the run that was never stopped, bit for bit."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from checkpoint.test_checkpoint_file import flip_bit
from configs import built, composed
from hydra.types import RunMode
from omegaconf import OmegaConf
from small_run import CALLBACKS, KilledError, assert_same_run, begun, run_here, said, start, stopped_and_resumed, told

from seq2seq_attn.checkpoint import resume
from seq2seq_attn.checkpoint.checkpoint_file import write_checkpoint
from seq2seq_attn.checkpoint.exact_resume import correct_counters, restore_metrics
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.distributed.run_folder import VARIABLE
from seq2seq_attn.errors import UserError
from seq2seq_attn.logger.wandb_logger import run_id

pytestmark = pytest.mark.usefixtures("quiet")


EVERY_TWO = "callback.autosave.every_steps=2"
SCENARIOS = {  # an epoch has 7 batches; what the run is of, where it dies in turn, and after which updates it goes on
    "within epochs, a validation and the test": (
        [EVERY_TWO],
        [("backward", 4), ("validation", 7), ("batch_end", 13), ("test", 21)],
        [4, 6, 12, 21],
    ),
    "around the end of an epoch": (
        [EVERY_TWO, "model=transformer", "attention=multihead", "scheduler=plateau", "scheduler.patience=0"],
        [("validation_end", 7), ("epoch_end", 7), ("batch_start", 14), ("backward", 15)],
        [6, 6, 14, 14],
    ),
    "saved after validations alone": (
        [],
        [("backward", 3), ("batch_start", 7), ("backward", 13), ("epoch_end", 21)],
        [0, 7, 7, 14],
    ),
    "with nothing but its best checkpoint": (
        [
            *("callback=[seeding,throughput,checkpoint,early_stopping]", "scheduler=plateau", "scheduler.patience=0"),
            "monitor=val/loss",  # which is better after each epoch
        ],
        [("backward", 9), ("epoch_end", 14)],
        [7, 14],
    ),
    "with nothing but its best checkpoint, of a validation between accumulated batches": (
        [
            *("callback=[seeding,throughput,checkpoint,early_stopping]", "scheduler=plateau", "scheduler.patience=0"),
            *("monitor=val/loss", "trainer.accumulate_grad_batches=2", "trainer.val_check_interval=3"),
        ],
        [("backward", 2)],
        [1],
    ),
    "read twice, with words dropped and predicted": (
        [
            *(EVERY_TWO, "attention=bahdanau", "r_drop_alpha=5.0", "token_dropout.source=0.2"),
            *("token_dropout.target=0.2", "scheduled_sampling.share=0.3", "scheduled_sampling.steps=9"),
        ],
        [("backward", 5), ("batch_end", 11)],
        [4, 10],
    ),
    "accumulated batches": (
        [EVERY_TWO, "trainer.accumulate_grad_batches=2"],
        [("backward", 3), ("validation", 4), ("backward", 9)],
        [2, 4, 8],
    ),
    "a number of steps": (
        [EVERY_TWO, "trainer.max_steps=10"],
        [("backward", 9), ("validation", 10), ("test", 10)],
        [8, 10, 10],
    ),
    "stopped early": (
        ["callback.early_stopping.patience=1", "trainer.max_epochs=9", "optimizer.lr=0.0"],
        [("backward", 9), ("test", 14)],
        [7, 14],
    ),
    "a rate that follows several validations of an epoch": (
        [EVERY_TWO, "trainer.val_check_interval=3", "scheduler=plateau", "scheduler.patience=0"],
        [("validation_end", 3), ("validation", 6), ("batch_start", 10), ("validation_end", 13)],
        [2, 6, 10, 12],
    ),
    "two validations an epoch": (
        [EVERY_TWO, "trainer.val_check_interval=3"],
        [("validation", 3), ("batch_start", 6), ("backward", 10)],
        [2, 6, 10],
    ),
    "a recurrent model": (
        [EVERY_TWO, "model=rnn", "trainer.max_epochs=2"],
        [("backward", 5), ("batch_end", 11)],
        [4, 10],
    ),
}


FAST = ("within epochs, a validation and the test",)  # the others draw from the same generators and save the same state


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in SCENARIOS]
)
def test_a_run_that_died_and_was_resumed_is_the_run_that_never_died(
    scenario: str, tmp_path: Path, pairs: list[str], trained_run: Path
) -> None:
    options, stops, begins = SCENARIOS[scenario]
    whole = trained_run  # saved after its validations alone: saving more often changes nothing
    if set(options) - {EVERY_TWO}:
        whole = tmp_path / "whole"
        run_here(whole, *pairs, *options)
    assert stopped_and_resumed(tmp_path / "stopped", [*pairs, *options], *stops) == [0, *begins]
    assert_same_run(tmp_path / "stopped", whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_a_run_with_workers_that_died_and_was_resumed_is_the_run_without_them(
    number: int, tmp_path: Path, pairs: list[str], trained_run: Path
) -> None:
    options = [*pairs, "num_workers=2", EVERY_TWO]  # segmentations are sampled
    stops = [("backward", 5), ("batch_end", 13)][:number]
    assert stopped_and_resumed(tmp_path / "run", options, *stops) == [0, 4, 12][: number + 1]
    assert_same_run(tmp_path / "run", trained_run)


@pytest.mark.parametrize("position", [None, pytest.param(0, marks=pytest.mark.slow)], ids=["one bit flipped", "empty"])
def test_a_run_whose_last_checkpoint_is_broken_goes_on_exactly_from_the_one_before(
    position: int | None, tmp_path: Path, pairs: list[str], trained_run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:13}"
    with pytest.raises(KilledError):
        run_here(tmp_path / "broken", *pairs, EVERY_TWO, killer)
    last = tmp_path / "broken" / "checkpoints" / "last.ckpt"
    steps = [read_checkpoint(file)["global_step"] for file in (last, last.with_name("previous.ckpt"))]
    assert steps == [12, 10]
    if position is None:
        flip_bit(last)
    else:
        os.truncate(last, position)
    caplog.clear()
    run_here(tmp_path / "broken", *pairs, "resume=auto")
    assert begun[-1] == 10
    (named,) = [record.getMessage() for record in caplog.records if str(last) in record.getMessage()]
    assert named.endswith("; previous.ckpt is taken instead")
    assert_same_run(tmp_path / "broken", trained_run)


def test_a_complete_run_is_not_run_again(tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seq2seq_attn")
    given = [*pairs, "trainer.max_steps=1"]
    results = run_here(tmp_path, *given, "resume=auto")
    assert f"The run starts in {tmp_path}" in caplog.messages
    caplog.clear()
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert VARIABLE not in os.environ
    assert run_here(tmp_path, *given, "resume=auto") == results
    assert VARIABLE not in os.environ
    assert caplog.messages == [f"{tmp_path} is complete; nothing is left to train"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


@pytest.mark.parametrize("kept", ["results.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt"])
def test_a_new_run_is_refused_where_there_is_one_which_stays_as_it_is(
    kept: str, tmp_path: Path, pairs: list[str]
) -> None:
    run_here(tmp_path, *pairs, "trainer.max_steps=1")
    for name in ("results.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt"):
        if name != kept:
            (tmp_path / name).unlink()
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(UserError, match=f"^{tmp_path} holds a run; resume=auto continues it, and another hydra.run.di"):
        run_here(tmp_path, *pairs, "trainer.max_steps=2")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


@pytest.mark.slow
def test_a_run_whose_folder_has_moved_keeps_its_best(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path / "run", *pairs, "trainer.max_epochs=1")
    last = tmp_path / "run/checkpoints/last.ckpt"
    checkpoint = read_checkpoint(last)
    (state,) = (state for state in checkpoint["callbacks"].values() if "best_k_models" in state)
    state["best_model_score"] = torch.tensor(1000.0)  # which the next epoch does not reach
    state["best_k_models"] = dict.fromkeys(state["best_k_models"], state["best_model_score"])
    write_checkpoint(checkpoint, last)
    best = (tmp_path / "run/checkpoints/best.ckpt").read_bytes()
    (tmp_path / "run").rename(tmp_path / "moved")
    run_here(tmp_path / "moved", *pairs, "trainer.max_epochs=2", "resume=auto")
    assert (tmp_path / "moved/checkpoints/best.ckpt").read_bytes() == best
    (state,) = (
        state
        for state in read_checkpoint(tmp_path / "moved/checkpoints/last.ckpt")["callbacks"].values()
        if "best_k_models" in state
    )
    assert state["best_model_path"] == str(tmp_path / "moved/checkpoints/best.ckpt")


@pytest.mark.slow
def test_a_run_whose_last_checkpoint_is_a_link_goes_on_exactly(
    tmp_path: Path, pairs: list[str], trained_run: Path
) -> None:
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:13}"
    with pytest.raises(KilledError):
        run_here(tmp_path / "run", *pairs, killer)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    last.rename(tmp_path / "kept")
    last.symlink_to(tmp_path / "kept")
    run_here(tmp_path / "run", *pairs, "resume=auto")
    assert begun[-1] == 7
    assert_same_run(tmp_path / "run", trained_run)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["gone", pytest.param("cut", marks=pytest.mark.slow)])
def test_a_best_checkpoint_that_is_gone_is_said_and_the_best_from_there_on_is_tested(
    spoil: str, tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_here(tmp_path, *pairs, "trainer.max_epochs=1")
    best = tmp_path / "checkpoints" / "best.ckpt"
    last = best.with_name("last.ckpt")
    checkpoint = read_checkpoint(last)
    (state,) = (state for state in checkpoint["callbacks"].values() if "best_k_models" in state)
    state["best_model_score"] = torch.tensor(1000.0)  # which the next epoch does not reach
    state["best_k_models"] = dict.fromkeys(state["best_k_models"], state["best_model_score"])
    write_checkpoint(checkpoint, last)
    best.unlink() if spoil == "gone" else os.truncate(best, 1000)
    caplog.clear()
    run_here(tmp_path, *pairs, "trainer.max_epochs=2", "resume=auto")
    (said_of_it,) = [line for line in caplog.messages if line.startswith(str(best))]
    assert said_of_it.endswith("; until there the best val/bleu was 1000; the best from there on is kept and tested")
    assert read_checkpoint(best)["global_step"] == 14


@pytest.mark.slow
def test_other_data_under_the_same_names_is_said(
    tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (val,) = (option for option in pairs if option.startswith("data.val="))
    options = [option for option in pairs if option != val]
    lines = Path(val.partition("=")[2]).read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "val.tsv").write_text("".join(lines), "utf-8")
    given = [*options, f"data.val={tmp_path / 'val.tsv'}"]
    run_here(tmp_path / "run", *given, "trainer.max_epochs=1")
    caplog.clear()
    run_here(tmp_path / "run", *given, "trainer.max_epochs=2", "resume=auto")
    assert not [line for line in caplog.messages if "The data is not that" in line]
    (tmp_path / "val.tsv").write_text("".join(lines[:-3]), "utf-8")
    run_here(tmp_path / "run", *given, "trainer.max_epochs=3", "resume=auto")
    assert len([line for line in caplog.messages if "The data is not that with which the run was trained" in line]) == 1


@pytest.mark.slow
def test_a_copy_by_hard_links_leaves_the_files_of_the_run_as_they_are(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path / "run", *pairs, "trainer.max_epochs=1")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    shutil.copytree(tmp_path / "run", tmp_path / "copy", copy_function=os.link)
    run_here(tmp_path / "copy", *pairs, "trainer.max_epochs=2", "resume=auto")
    assert {file: file.read_bytes() for file in before if file.exists()} == before


@pytest.mark.parametrize(
    ("accelerator", "way_out"),
    [
        ("tpu", "choose other options of trainer"),
        pytest.param(
            *("gpu", "trainer=cpu needs no GPU"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_options_that_are_refused_leave_the_results_of_a_complete_run(
    accelerator: str, way_out: str, tmp_path: Path, pairs: list[str]
) -> None:
    run_here(tmp_path, *pairs, "trainer.max_epochs=1")
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(UserError, match=rf"^Lightning's Trainer refuses its options: .+[^.!]; {way_out}$"):
        run_here(tmp_path, *pairs, "trainer.max_epochs=2", "resume=auto", f"trainer.accelerator={accelerator}")
    assert (tmp_path / "results.json").read_bytes() == before


@pytest.mark.slow
def test_a_run_may_go_on_from_a_checkpoint_of_its_own_folder_that_is_named(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path / "run", *pairs, "trainer.max_steps=1")
    named = f"ckpt_path={tmp_path / 'run/checkpoints/last.ckpt'}"
    assert run_here(tmp_path / "run", *pairs, "trainer.max_steps=2", named)["steps"] == 2
    run_here(tmp_path / "other", *pairs, "trainer.max_steps=1")
    with pytest.raises(UserError, match=r"other holds a run; "):
        run_here(tmp_path / "other", *pairs, "trainer.max_steps=2", named)


def test_the_rest_of_an_epoch_of_other_batches_is_refused(tmp_path: Path, pairs: list[str]) -> None:
    with pytest.raises(KilledError):
        run_here(tmp_path, *pairs, EVERY_TWO, "+callback.killed={_target_:small_run.Killed,hook:backward,step:4}")
    records = [tmp_path / "config.yaml", tmp_path / "provenance.json"]
    before = [file.read_bytes() for file in records]
    with pytest.raises(
        UserError, match=r"^the run was stopped within an epoch, after 4 of 7 batches for each of 1 devices with "
    ):
        run_here(tmp_path, *pairs, "resume=auto", "batch_tokens=200")
    assert [file.read_bytes() for file in records] == before


@pytest.mark.slow
def test_a_time_limit_counts_what_was_trained_before(tmp_path: Path, pairs: list[str]) -> None:
    given = [*pairs, EVERY_TWO, "trainer.max_time=00:01:00:00", "resume=auto"]
    with pytest.raises(KilledError):
        run_here(tmp_path, *given, "+callback.killed={_target_:small_run.Killed,hook:backward,step:5}")
    last = tmp_path / "checkpoints" / "last.ckpt"
    checkpoint = read_checkpoint(last)
    assert checkpoint["callbacks"]["Timer"]["time_elapsed"]["train"] > 0
    checkpoint["callbacks"]["Timer"]["time_elapsed"]["train"] = 3600.0
    write_checkpoint(checkpoint, last)
    assert run_here(tmp_path, *given)["steps"] == checkpoint["global_step"] == 4


def test_a_run_that_goes_on_is_the_same_run_at_wandb_and_a_new_one_is_another(tmp_path: Path) -> None:
    file = tmp_path / "run" / "wandb_run_id"
    first = run_id(file, "auto")
    assert run_id(file, "auto") == first
    assert run_id(file, None) != first
    chosen = [
        "logger=wandb",
        "logger.wandb.name=any",
        "logger.wandb.tags=[]",
        "logger.wandb.offline=true",
        "resume=auto",
    ]
    assert built(composed(*chosen, f"paths.run_dir={file.parent}").logger.wandb).version == run_id(file, "auto")


def test_the_private_counters_of_lightning_that_a_resumed_run_corrects_are_there_as_of_2_6_6() -> None:
    trainer: Any = pl.Trainer(logger=False, accelerator="cpu", enable_progress_bar=False, max_epochs=1)
    assert isinstance(trainer.fit_loop.epoch_loop._batches_that_stepped, int)
    assert trainer.fit_loop._restarting is trainer.fit_loop.epoch_loop._skip_next_val is False
    restore_metrics(trainer, {"val/bleu": torch.tensor(7.0)})
    assert trainer.callback_metrics == {"val/bleu": 7.0}
    correct_counters(trainer)


PATIENCE = 600.0  # seconds for a command to come so far, on a machine that does other things


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "kills"), [(1, 20), (2, 5)])
def test_a_run_killed_at_random_moments_is_the_run_that_was_never_killed_on_every_rank(
    ranks: int, kills: int, pairs: list[str], tmp_path: Path
) -> None:
    interval, random = 5, Random(7)
    long = ["trainer.max_epochs=60", "callback.early_stopping.patience=99"]
    long += [CALLBACKS.replace("checkpoint,", "checkpoint,best_checkpoints,history,")]
    long += ["callback.best_checkpoints.save_top_k=3", "callback.history.save_top_k=2"]
    options = [*pairs, *long, f"callback.autosave.every_steps={interval}"]
    options += ["trainer=ddp_cpu"] if ranks == 2 else []
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole, *options).wait(PATIENCE) == 0, said(whole)
    for _ in range(kills):
        further = len(told(killed)) + ranks * random.randint(1, 3 * interval)
        process = start(killed, *options, seconds=0.05)
        latest = time.monotonic() + PATIENCE
        while len(told(killed)) < further:
            assert process.poll() is None, said(killed)
            assert time.monotonic() < latest, said(killed)
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert start(killed, *options).wait(PATIENCE) == 0, said(killed)
    assert said(killed).count("The run resumes") >= kills // 2
    assert_same_run(killed, whole)
    assert losses(killed) == losses(whole)
    assert len(losses(whole)) == ranks * max(line.step + 1 for line in told(whole) if line.stage == "train")
    steps = [line.step for line in told(killed) if line.stage == "train" and line.rank == 0]
    again = [before - after for before, after in pairwise(steps) if after <= before]
    assert len(again) > kills // 2
    assert max(again) <= interval


def losses(folder: Path) -> dict[tuple[int, int], set[str]]:
    """By rank and step, every loss that was told of it; a step that was done again told it again."""
    found: dict[tuple[int, int], set[str]] = {}
    for line in told(folder):
        if line.stage == "train":
            found.setdefault((line.rank, line.step), set()).add(line.loss)
    return found


@pytest.mark.parametrize(
    ("mode", "folder", "expected"),
    [
        (RunMode.RUN, "runs/train/${now:%Y-%m-%d}", True),
        (RunMode.RUN, "runs/train/mine", False),  # also where a file of the user's names it
        (RunMode.MULTIRUN, "runs/train/${now:%Y-%m-%d}", False),  # numbers name the folders of jobs
    ],
)
def test_a_run_that_the_same_command_will_not_find_is_warned_of(
    mode: RunMode, folder: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    hydra = SimpleNamespace(mode=mode, run=OmegaConf.create({"dir": folder}))
    monkeypatch.setattr(resume.HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(resume.HydraConfig, "get", lambda: hydra)
    assert resume.starting_point(OmegaConf.create({"resume": "auto", "ckpt_path": None}), tmp_path) is None
    assert ("named by the time" in caplog.text) == expected


def test_a_checkpoint_that_is_named_beside_resume_auto_is_said_not_to_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    monkeypatch.setattr(resume, "read_latest", lambda folder: (folder / "last.ckpt", None))
    monkeypatch.setattr(resume, "read_checkpoint", lambda file, content: {"config": {}})
    for name in ("last.ckpt", "step=7.ckpt"):
        (folder / name).touch()
    for named in (folder / "last.ckpt", tmp_path / "other.ckpt", folder / "step=7.ckpt", folder / "step=9.ckpt"):
        resume.starting_point(OmegaConf.create({"resume": "auto", "ckpt_path": str(named)}), tmp_path / "run")
    first, _ = [message for message in caplog.messages if "is not read" in message]
    assert first == (
        f"resume=auto continues from last.ckpt, and ckpt_path={folder / 'step=7.ckpt'} is not read; leave out "
        "resume=auto to go back to it"
    )
