"""Where a run can be saved and resumed exactly: between two updates, and before a validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def agreed(trainer: Any, value: int) -> int:
    """The largest of all ranks' values, so that all do the same at the same step; alone it costs nothing."""
    if trainer.world_size == 1:
        return value
    largest = torch.tensor(int(value), device=trainer.strategy.root_device)
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return int(largest)


def is_safe(trainer: Any) -> bool:
    """Whether no gradient of an accumulated batch is waiting, which no checkpoint holds."""
    loop = trainer.fit_loop.epoch_loop
    done = loop.batch_progress.current.processed
    return done % trainer.accumulate_grad_batches == 0 or done == trainer.num_training_batches


def save_last(trainer: Any, folder: Path) -> None:
    """`last.ckpt`; every rank has to call it."""
    trainer.save_checkpoint(folder / "last.ckpt")
