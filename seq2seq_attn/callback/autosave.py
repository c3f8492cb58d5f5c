"""Save `last.ckpt` after each validation and every so many updates or minutes: a run that dies loses no more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl

from seq2seq_attn.callback.safe_point import agreed, is_safe, save_last
from seq2seq_attn.errors import UserError

LOOK_EVERY = 8  # batches between two looks at the clock, upon which ranks have to agree


@final
class Autosave(pl.Callback):
    """What falls due in an update or a validation is saved when its row is in metrics.csv and all callbacks saw it.

    Args:
        folder: of the checkpoints.
        every_steps: updates between two saves; None: those are not counted.
        every_minutes: between two saves; None: time does not matter.
    """

    def __init__(self, *, folder: str, every_steps: int | None, every_minutes: float | None) -> None:
        for name, interval in (("every_steps", every_steps), ("every_minutes", every_minutes)):
            if interval is not None and interval <= 0:
                raise UserError(f"callback.autosave.{name}={interval} is no interval; use a positive one, or null")
        self.folder, self.every_steps, self.every_minutes = Path(folder), every_steps, every_minutes
        self._due = False
        self._mark = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._due, self._mark = False, time.monotonic()

    def on_train_batch_end(
        self, trainer: Any, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.every_steps is not None and is_safe(trainer) and trainer.global_step % self.every_steps == 0:
            self._due = True
        looks = trainer.world_size == 1 or batch_idx % LOOK_EVERY == 0
        if self.every_minutes is not None and looks:
            late = time.monotonic() - self._mark >= 60 * self.every_minutes
            self._due |= bool(agreed(trainer, late))

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._save(trainer)

    def on_validation_start(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._save(trainer)

    def on_validation_end(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._due = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if self._due and is_safe(trainer):
            self._due, self._mark = False, time.monotonic()
            save_last(trainer, self.folder)
