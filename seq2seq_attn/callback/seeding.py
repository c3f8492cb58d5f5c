"""Every random draw of a training step as a function of (seed, epoch, batch, rank)."""

from __future__ import annotations

from typing import Annotated, Any, final

import numpy as np
import pytorch_lightning as pl
import torch


@final
class Seeding(pl.Callback):
    """Seeds torch before each batch, so that a resumed run draws the same numbers."""

    def __init__(self, *, seed: Annotated[int, "[0, 4294967295]"]) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        entropy = [self.seed, trainer.current_epoch, batch_idx, trainer.global_rank]
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # torch.manual_seed would record the stack for each kind of device that is absent
            torch.default_generator.manual_seed(seed)
