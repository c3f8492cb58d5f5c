"""Save `last.ckpt` after each validation and after a number of updates or minutes, so that little is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.data.data_module import batches_of_updates
from seq2seq_attn.distributed.run_lock import LAST

CLOCK_EVERY = 8  # batches between two readings of the clock, on which ranks have to agree


@final
class Autosave(pl.Callback):
    """What is due after an update or a validation is saved once its row is in metrics.csv and all callbacks have run.

    Args:
        folder: of the checkpoints.
        every_steps: updates between two saves; None: they are not counted.
        every_minutes: between two saves; None: time does not matter.
    """

    def __init__(
        self,
        *,
        folder: str,
        every_steps: Annotated[int | None, "[1, 1000000000]"],
        every_minutes: Annotated[float | None, "(0, inf)"],
    ) -> None:
        self.folder, self.every_steps, self.every_minutes = Path(folder), every_steps, every_minutes
        self._due = False
        self._saved_at = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._due, self._saved_at = False, time.monotonic()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.every_steps is not None and is_between_updates(trainer) and trainer.global_step % self.every_steps == 0:
            self._due = True
        reads_clock = trainer.world_size == 1 or batch_idx % CLOCK_EVERY == 0
        if self.every_minutes is not None and reads_clock:
            late = time.monotonic() - self._saved_at >= 60 * self.every_minutes
            self._due |= bool(agreed(trainer, late))

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._save(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._save(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._due = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._due:  # also within an update: nothing follows
            self._save_now(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if self._due and is_between_updates(trainer):
            self._save_now(trainer)

    def _save_now(self, trainer: pl.Trainer) -> None:
        self._due, self._saved_at = False, time.monotonic()
        save_last(trainer, self.folder)


def is_between_updates(trainer: Any) -> bool:
    """Whether no gradient is being accumulated, so that a run resumed from here repeats no batch."""
    return batches_of_updates(trainer) == int(trainer.fit_loop.epoch_loop.batch_progress.current.processed)


def agreed(trainer: Any, value: int) -> int:
    """Return the largest value of all ranks, so that all do the same at the same step."""
    if trainer.world_size == 1:
        return value
    largest = torch.tensor(int(value), device=trainer.strategy.root_device)
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return int(largest)


def save_last(trainer: Any, folder: Path) -> None:
    """Save `last.ckpt`; every rank has to call it."""
    trainer.save_checkpoint(folder / LAST)
