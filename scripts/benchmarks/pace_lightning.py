"""The callback with which `training.py` paces `train.py`."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl

from scripts.benchmarks.pace_training import Pace
from seq2seq_attn.batch import Batch


@final
class Paced(pl.Callback):
    """Report every update to the benchmark: `+callback.pace._target_=scripts.benchmarks.pace_lightning.Paced`."""

    def __init__(self) -> None:
        self.pace = Pace.of_benchmark()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        tokens = int(batch.source_lengths.sum() + batch.target_lengths.sum())
        self.pace.updated(tokens, batch.source.numel() + batch.target_output.numel())
