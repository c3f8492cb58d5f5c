"""A progress bar that never delays a step: on a GPU, reading a number waits for all work queued before it."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar

SHOWN = ("train/loss", "train/tokens_per_second")


@final
class ProgressBar(RichProgressBar):
    """Lightning's, with the loss and the speed of the last logged step, where they are read anyway.

    Args:
        refresh_rate: redraws a second, in a thread beside the training.
        leave: keep the bars of finished epochs.
    """

    def __init__(self, *, refresh_rate: int, leave: bool) -> None:
        super().__init__(refresh_rate=refresh_rate, leave=leave)
        self._training: dict[str, float] = {}

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        if trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            metrics = trainer.callback_metrics
            self._training = {name: metrics[name].item() for name in SHOWN if name in metrics}
        return super().get_metrics(trainer, pl_module) | self._training
