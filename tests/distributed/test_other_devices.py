"""A run that goes on with another number of devices, at the end of an epoch and within one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from distributed.ranks import on_ranks
from small_run import KilledError, begun, run_here, write_pairs
from torch.multiprocessing.spawn import ProcessRaisedException

OPTIONS = [
    "callback.autosave.every_steps=1", "attention=bahdanau", "batch_tokens=370", "trainer.max_epochs=3",
]  # fmt: skip
BATCHES = {1: 8, 2: 4}  # an epoch, by the number of devices


class Rows(pl.Callback):
    """Writes the rows of each training batch to a file of the device, with the epoch."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        with (self.folder / f"rows_{trainer.world_size}_{trainer.global_rank}.txt").open("a") as file:
            file.write(f"{trainer.current_epoch} {batch_idx} {' '.join(map(str, batch.index.tolist()))}\n")


def rows_read(folder: Path) -> dict[int, list[int]]:
    """The rows read in each epoch by all devices, before and after the change."""
    found: dict[int, list[int]] = {}
    for file in folder.glob("rows_*.txt"):
        for line in file.read_text().splitlines():
            epoch, _, *rows = map(int, line.split())
            found.setdefault(epoch, []).extend(rows)
    return found


def lines_written(folder: Path) -> dict[str, int]:
    """Training batches by world size and rank."""
    return {file.stem.removeprefix("rows_"): file.read_text().count("\n") for file in folder.glob("rows_*.txt")}


def run_and_tell(*given: Any) -> int:
    """Return after how many updates the run began."""
    run_here(*given)
    return begun[-1]


def train_on(devices: int, folder: Path, *options: str) -> set[int]:
    """Return after how many updates the run began on each device."""
    given = [folder / "run", *OPTIONS, *options, f"+callback.rows={{_target_:{__name__}.Rows,folder:{folder}}}"]
    if devices == 1:
        return {run_and_tell(*given)}
    return set(on_ranks(devices, run_and_tell, folder, *given, "trainer.strategy=ddp", f"trainer.devices={devices}"))


def killed_after(steps: int) -> str:
    return f"+callback.killed={{_target_:small_run.Killed,hook:backward,step:{steps}}}"


WITHIN_AN_EPOCH = (1, 6)
OTHERS = [(1, 2), (1, 4), (1, 8), (1, 12), (2, 3), (2, 4), (2, 7)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "steps"), [WITHIN_AN_EPOCH, *(pytest.param(*stop, marks=pytest.mark.slow) for stop in OTHERS)]
)
def test_each_pair_is_read_once_in_each_epoch(first: int, steps: int, tmp_path: Path) -> None:
    pairs, second = write_pairs(tmp_path), 3 - first
    error, text = (KilledError, "^$") if first == 1 else (ProcessRaisedException, "KilledError")
    with pytest.raises(error, match=text):
        train_on(first, tmp_path, *pairs, killed_after(steps))
    before = {f"{first}_{rank}": steps for rank in range(first)}
    assert lines_written(tmp_path) == before
    assert train_on(second, tmp_path, *pairs, "resume=auto") == {steps}
    after = 3 * BATCHES[second] - steps * BATCHES[second] // BATCHES[first]
    assert lines_written(tmp_path) == before | {f"{second}_{rank}": after for rank in range(second)}
    found = rows_read(tmp_path)
    assert [sorted(found[epoch]) for epoch in range(3)] == [list(range(83))] * 3


@pytest.mark.slow
def test_an_epoch_that_cannot_be_shared_equally_from_there_on_is_refused(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path)
    with pytest.raises(KilledError):
        train_on(1, tmp_path, *pairs, killed_after(5))
    with pytest.raises(ProcessRaisedException, match=r"after 5 of 8 batches for each of 1 devices .* shared equally"):
        train_on(2, tmp_path, *pairs, "resume=auto")
