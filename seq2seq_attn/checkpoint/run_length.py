"""The number of updates of a run, which may have been resumed with other batches or devices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Position(NamedTuple):
    """Where a resumed run continues.

    Attributes:
        step: updates done.
        epoch: complete epochs.
        batches: those of the current epoch that each device has read.
    """

    step: int
    epoch: int
    batches: int


def run_length(trainer: Any, resumed_at: Position | None) -> int | float:
    """Return the updates of the whole run: those done before it was resumed, and those that its limits still allow.

    Lightning's estimate counts every epoch with the present number of batches, even those that had another number.
    """
    estimated: int | float = trainer.estimated_stepping_batches  # which loads the data
    if resumed_at is None or trainer.max_epochs in (None, -1) or not math.isfinite(trainer.num_training_batches):
        return estimated
    batches, accumulated = trainer.num_training_batches, trainer.accumulate_grad_batches
    of_epoch = -(-batches // accumulated)
    rest = 0 if resumed_at.batches >= batches else of_epoch - resumed_at.batches // accumulated
    steps: int = resumed_at.step + rest + max(0, trainer.max_epochs - resumed_at.epoch - 1) * of_epoch
    return steps if trainer.max_steps == -1 else min(steps, trainer.max_steps)
