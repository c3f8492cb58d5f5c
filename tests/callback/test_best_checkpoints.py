"""The checkpoints of the best validations: those and no others, beside the last ones, however the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import rows, run_here

from seq2seq_attn.checkpoint.average import chosen
from seq2seq_attn.checkpoint.load import read_checkpoint

pytestmark = pytest.mark.usefixtures("quiet")
KEPT = [  # two of each
    "callback=[seeding,checkpoint,best_checkpoints,history,autosave]", "callback.best_checkpoints.save_top_k=2",
    "callback.history.save_top_k=2", "monitor=val/loss", "scheduler=constant", "trainer.limit_train_batches=3",
    "search.limits.max_length=3",
]  # fmt: skip


def kept(folder: Path, prefix: str = "best-step=") -> list[int]:
    """Return the steps of the checkpoints whose names begin so."""
    files = (folder / "checkpoints").glob(f"{prefix}*.ckpt")
    steps = {file: int(file.stem.removeprefix(prefix)) for file in files}
    assert all(read_checkpoint(file)["global_step"] == step for file, step in steps.items())
    return sorted(steps.values())


def losses(folder: Path) -> dict[int, float]:
    """Return the loss of each validation, by its step."""
    return {int(row["step"]) + 1: float(row["val/loss"]) for row in rows(folder) if row["val/loss"]}


def lowest(folder: Path, number: int) -> list[int]:
    found = losses(folder)
    return sorted(sorted(found, key=found.__getitem__)[:number])


def remembered(folder: Path) -> list[dict[str, float]]:
    """Return what each callback keeps, by the names of the files, as `last.ckpt` has it."""
    states = read_checkpoint(folder / "checkpoints" / "last.ckpt")["callbacks"].values()
    kept = [state["best_k_models"] for state in states if "best_k_models" in state]
    return [{Path(file).name: float(score) for file, score in files.items()} for files in kept]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_run_keeps_its_best_and_no_others_beside_its_last_and_they_are_averaged(
    mode: str, tmp_path: Path, pairs: list[str]
) -> None:
    options = [f"monitor_mode={mode}", "callback.best_checkpoints.save_top_k=3", "trainer.val_check_interval=1"]
    run_here(tmp_path, *pairs, *KEPT, *options)
    found = losses(tmp_path)
    assert len(set(found.values())) == len(found) == 9
    best = sorted(sorted(found, key=found.__getitem__, reverse=mode == "max")[:3])
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (best, [8, 9])
    others = {file.name for file in (tmp_path / "checkpoints").iterdir() if "step=" not in file.name}
    assert others == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    averaged = [file.name for file in chosen([str(tmp_path)], last=None, best=3)]
    assert averaged == [f"best-step={step}.ckpt" for step in best]


def test_without_the_option_there_are_none(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path, *pairs, *KEPT, "callback.best_checkpoints.save_top_k=0", "trainer.max_epochs=1")
    assert (kept(tmp_path), kept(tmp_path, "step=")) == ([], [3])


def test_a_validation_after_the_last_update_is_one_of_those_that_are_kept(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_steps=5")
    assert (kept(tmp_path), kept(tmp_path, "step=")) == ([3, 5], [3, 5])
    assert [set(files) for files in remembered(tmp_path)] == [
        {"best.ckpt"},
        {"best-step=3.ckpt", "best-step=5.ckpt"},
        {"step=3.ckpt", "step=5.ckpt"},
    ]
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_steps=9", "resume=auto")
    assert list(losses(tmp_path)) == [3, 5, 6, 9]
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (lowest(tmp_path, 2), [6, 9])


def test_the_same_validation_once_more_changes_nothing_that_is_kept(tmp_path: Path, pairs: list[str]) -> None:
    options = [*pairs, *KEPT, "callback=[seeding,best_checkpoints,history,autosave]"]
    run_here(tmp_path, *options)
    before = remembered(tmp_path)
    for name in ("results.json", "checkpoints/best.ckpt"):
        (tmp_path / name).unlink()
    run_here(tmp_path, *options, "resume=auto")
    assert remembered(tmp_path) == before
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (lowest(tmp_path, 2), [6, 9])
