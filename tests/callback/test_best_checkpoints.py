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
