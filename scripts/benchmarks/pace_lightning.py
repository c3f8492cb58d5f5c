"""The callback by which `training.py` paces `train.py`: `+callback.pace._target_=pace_lightning.Paced`."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl

from scripts.benchmarks.pace_training import Pace
from seq2seq_attn.batch import Batch


@final
class Paced(pl.Callback):
    def __init__(self) -> None:
        self.pace = Pace.of_benchmark()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        tokens = int(batch.source_lengths.sum() + batch.target_lengths.sum())
        self.pace.updated(tokens, batch.source.numel() + batch.target_output.numel())
