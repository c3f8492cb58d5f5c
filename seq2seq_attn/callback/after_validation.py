"""What is drawn and translated behind a validation: of which sentences, by whom, for whom and at which step."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.strategies import FSDPStrategy


def is_shown_here(trainer: Any) -> bool:
    """Whether this process speaks for the run and has the whole model, which in shards no process has."""
    sharded = isinstance(trainer.strategy, FSDPStrategy)
    return trainer.is_global_zero and not sharded and not trainer.sanity_checking


def logged_step(trainer: Any) -> int:
    """Where the figures of this validation stand: at its last update, counted from 0."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def loggers_that(takes: str, loggers: list[Any]) -> list[Any]:
    """Those with a method of this name."""
    return [logger for logger in loggers if hasattr(logger, takes)]


def spread(length: int, count: int) -> list[int]:
    """So many positions of a list, evenly apart from the first on; all of a short one."""
    count = min(count, length)
    return [number * length // count for number in range(count)]
