"""A resumed run is the same W&B run with the same TensorBoard curves, in which each step appears once.

What trains several runs is slow; the loggers alone are tested always, here and in test_wandb_online.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from logger.test_wandb_run import AXIS, files, read, values
from small_run import KilledError, run_here
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seq2seq_attn.logger.tensorboard_logger import TensorBoardRun
from seq2seq_attn.logger.wandb_logger import WandbRun, end_process

SHOWN = "gradient_norm,throughput,attention_entropy,translation_table"
LOGGED = [
    "logger=[tensorboard,wandb]", "logger.wandb.offline=true", "logger.wandb.name=any", "resume=auto",
    "search.limits.max_length=7",
    "trainer.log_every_n_steps=2", "trainer.max_steps=9", "trainer.val_check_interval=3",
    "callback.autosave.every_steps=2", f"callback=[seeding,{SHOWN},checkpoint,autosave,early_stopping]",
]  # fmt: skip
TIMED = "train/tokens_per_second"


@pytest.fixture(scope="module")
def whole(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Overrides that name the data, and a run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run_here(folder / "run", *pairs, *LOGGED)
    return pairs, folder / "run"


@pytest.fixture(scope="module")
def resumed(whole: tuple[list[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed a step, and then a validation, after its last checkpoint, and went on."""
    folder = tmp_path_factory.mktemp("resumed")
    kill(folder, whole[0], "batch_start", 5)
    kill(folder, whole[0], "validation_end", 6)
    run_here(folder, *whole[0], *LOGGED)
    return folder


def kill(folder: Path, pairs: list[str], hook: str, step: int) -> None:
    killed = f"+callback.killed={{_target_:small_run.Killed,hook:{hook},step:{step}}}"
    with pytest.raises(KilledError):
        run_here(folder, *pairs, *LOGGED, killed)
    end_process()


def history(run: Path) -> list[dict[str, Any]]:
    """Of all parts of a run, in the order in which they were written."""
    end_process()  # W&B's process has written all of them
    parts = [read(file) for file in files(run)]
    assert len({part.run.run_id for part in parts}) == 1
    return [row for part in parts for row in part.history]


def figures(rows: list[dict[str, Any]]) -> dict[str, dict[int, Any]]:
    """Every number by name and step, those that a clock has measured left out; none stands twice."""
    names = {name for row in rows for name, value in row.items() if not isinstance(value, dict)}
    return {name: values(rows, name) for name in names if name[0] != "_" and name not in (AXIS, TIMED, "epoch")}


@pytest.mark.slow
def test_steps_that_are_done_again_stand_once_and_as_if_the_run_was_never_stopped(
    whole: tuple[list[str], Path], resumed: Path
) -> None:
    assert len(files(resumed)) == 3
    found, expected = history(resumed), history(whole[1])
    assert figures(found) == figures(expected)
    assert len(figures(found)) > 10
    numbers = [row["_step"] for row in found]
    assert numbers == sorted(set(numbers))
    tables = [list(values(rows, "val/translations")) for rows in (found, expected)]
    assert tables[0] == tables[1] == [2, 5, 8]  # the last after training


@pytest.mark.slow
def test_a_logger_that_is_added_to_a_resumed_run_gets_all_of_its_steps(
    whole: tuple[list[str], Path], tmp_path: Path
) -> None:
    without = [option for option in LOGGED if not option.startswith("logger")]
    with pytest.raises(KilledError):
        run_here(tmp_path, *whole[0], *without, "+callback.killed={_target_:small_run.Killed,hook:batch_start,step:5}")
    run_here(tmp_path, *whole[0], *LOGGED)
    losses = [figures(history(folder))["train/loss"] for folder in (tmp_path, whole[1])]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_the_latest_checkpoint_of_the_folder_goes_on_however_it_is_named_and_an_earlier_one_does_not(
    whole: tuple[list[str], Path], tmp_path: Path
) -> None:
    given = [option for option in LOGGED if option != "resume=auto"]
    kill(tmp_path, whole[0], "batch_start", 5)
    first = (tmp_path / "wandb_run_id").read_text()
    checkpoints = tmp_path / "checkpoints"
    shutil.copy(checkpoints / "last.ckpt", checkpoints / "earlier.ckpt")
    run_here(tmp_path, *whole[0], *given, f"ckpt_path={checkpoints / 'last.ckpt'}")
    assert (tmp_path / "wandb_run_id").read_text() == first
    run_here(tmp_path, *whole[0], *given, "trainer.max_epochs=2", f"ckpt_path={checkpoints / 'earlier.ckpt'}")
    assert (tmp_path / "wandb_run_id").read_text() != first


def events(run: Path) -> dict[str, list[tuple[int, Any]]]:
    """Of TensorBoard's files, by tag: step and value, or the picture's or the text's bytes."""
    for file in (run / "tensorboard").glob("events.*"):  # read by name: of one second, 10 would precede 9
        file.rename(file.with_name(f"{file.stem}.{int(file.suffix[1:]):06d}"))
    found = EventAccumulator(str(run / "tensorboard"), size_guidance=dict.fromkeys(("scalars", "tensors", "images"), 0))
    found.Reload()
    scalars = {
        tag: [(e.step, e.value) for e in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
        if tag not in (TIMED, "epoch")
    }
    # TensorBoard's reader purges no texts; one that is logged again is the same, or its step is here twice
    texts = {
        tag: sorted({(e.step, *e.tensor_proto.string_val) for e in found.Tensors(tag)})
        for tag in found.Tags()["tensors"]
    }
    return scalars | texts


@pytest.mark.slow
def test_tensorboards_curves_are_those_of_a_run_that_was_never_stopped(
    whole: tuple[list[str], Path], resumed: Path
) -> None:
    assert len(list((resumed / "tensorboard").glob("events.*"))) > 1
    found, expected = events(resumed), events(whole[1])
    assert found.keys() == expected.keys()
    assert found == expected
    assert {"train/gradient_norm", "val/bleu", "val/attention_entropy", "val/translations/text_summary"} <= set(found)
    for points in found.values():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("resume", "steps", "shown"), [(None, range(2), [4.0, 4.0]), ("auto", range(1, 4), [5.0, 4.0, 4.0, 4.0])]
)
def test_tensorboard_hides_the_curves_of_an_earlier_run_of_the_folder_from_where_a_resumed_one_goes_on(
    resume: str | None, steps: range, shown: list[float], tmp_path: Path
) -> None:
    for loss, logged, option in ((5.0, range(3), None), (4.0, steps, resume)):
        logger = TensorBoardRun(save_dir=str(tmp_path), resume=option)
        for step in logged:
            logger.log_metrics({"train/loss": loss}, step)
        logger.finalize("success")
        for file in tmp_path.glob("tensorboard/events.*"):  # as if made a second before: files are read by their names
            number = int(file.name.split(".")[3])
            file.rename(file.with_name(file.name.replace(str(number), str(number - 1))))
    assert events(tmp_path) == {"train/loss": list(enumerate(shown))}


def logger_of(folder: Path, resume: str | None = None) -> WandbRun:
    return WandbRun(
        save_dir=str(folder), project="any", name="any", group=None, tags=["a", None], offline=True, resume=resume
    )


def test_a_run_that_was_left_open_is_not_written_on_by_the_next_of_its_process(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second")):
        logger_of(tmp_path / name).log_metrics({"train/loss": number}, step=number)
    end_process()
    runs = [read(file) for name in ("first", "second") for file in files(tmp_path / name)]
    assert [values(run.history, "train/loss") for run in runs] == [{0: 0}, {1: 1}]
    assert len({run.run.run_id for run in runs}) == 2
    assert [list(run.run.tags) for run in runs] == [["a"], ["a"]]


def test_a_run_that_starts_anew_in_its_folder_is_another_and_logs_its_first_steps(tmp_path: Path) -> None:
    for loss in (5.0, 4.0):
        logger_of(tmp_path).log_metrics({"train/loss": loss}, step=0)
    end_process()
    runs = [read(file) for file in files(tmp_path)]
    assert sorted(values(run.history, "train/loss")[0] for run in runs) == [4.0, 5.0]
    assert len({run.run.run_id for run in runs}) == 2


def test_a_run_of_a_wandb_agent_has_the_id_that_the_agent_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "chosen")
    assert logger_of(tmp_path / "other").version != "chosen"
    monkeypatch.setenv("WANDB_SWEEP_ID", "any")
    assert logger_of(tmp_path / "run").version == "chosen"
