"""A progress bar that never delays a step: on a GPU, reading a number waits for all work queued before it."""

from __future__ import annotations

from typing import Annotated, Any, final

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.callbacks.progress.rich_progress import ProcessingSpeedColumn
from rich.progress import BarColumn

from seq2seq_attn.text import plain_console

BAR_WIDTH = 10


@final
class ProgressBar(RichProgressBar):
    """Lightning's, with the loss and the speed of the last logged step, where they are read anyway.

    There is none where standard output is no terminal.

    Args:
        refresh_rate: redraws a second, in a thread beside the training.
        leave: keep the bars of finished epochs.
    """

    def __init__(self, *, refresh_rate: Annotated[int, "[0, 1000]"], leave: bool) -> None:
        super().__init__(refresh_rate=refresh_rate, leave=leave)
        self._training: dict[str, Any] = {}

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if not plain_console().is_terminal:
            self.disable()

    def configure_columns(self, trainer: pl.Trainer) -> list[Any]:
        """Return Lightning's columns with a shorter bar and without batches per second, to fit 80 characters."""
        columns = super().configure_columns(trainer)
        for column in columns:
            if isinstance(column, BarColumn):
                column.bar_width = BAR_WIDTH
        return [column for column in columns if not isinstance(column, ProcessingSpeedColumn)]

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        metrics = trainer.callback_metrics
        if trainer.global_step % trainer.log_every_n_steps == 0 and "train/loss" in metrics:  # type: ignore[attr-defined]
            self._training = {"loss": metrics["train/loss"].item()}
            if "train/tokens_per_second" in metrics:
                self._training["tokens/s"] = f"{metrics['train/tokens_per_second'].item():,.0f}"
        return self._training

    def _get_train_description(self, current_epoch: int) -> str:
        """Count epochs from 1. Private of Lightning, as of 2.6.6."""
        limit = self.trainer.max_epochs
        return f"Epoch {current_epoch + 1}" + (f"/{limit}" if limit not in (None, -1) else "")
