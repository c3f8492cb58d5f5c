"""Where the time of a training step goes: torch's profiler, with Lightning's hooks as ranges of its table."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import PassThroughProfiler, Profiler
from torch.profiler import record_function

log = logging.getLogger(__name__)


@final
class Profile(pl.Callback):
    """Writes `profile.txt` into the run folder after enough steps, or when the training ends.

    Args:
        warm_up_steps: are not measured.
        steps: are measured.
        operators: rows of the table: operators, and hooks of Lightning and of callbacks.
    """

    def __init__(
        self,
        *,
        folder: str,
        warm_up_steps: Annotated[int, "[0, 1000000]"],
        steps: Annotated[int, "[1, 1000000]"],
        operators: Annotated[int, "[0, 1000000]"],
    ) -> None:
        self.file = Path(folder) / "profile.txt"
        self.warm_up_steps, self.operators = warm_up_steps, operators
        warm_up = min(warm_up_steps, 1)  # the steps before it run without a profiler
        self._schedule = torch.profiler.schedule(wait=warm_up_steps - warm_up, warmup=warm_up, active=steps, repeat=1)
        self._profiler: torch.profiler.profile | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        trainer.profiler = HookRanges()
        by = "cpu_time_total" if pl_module.device.type == "cpu" else "device_time_total"
        ready = partial(self._write, by=by) if trainer.is_global_zero else None
        self._profiler = torch.profiler.profile(schedule=self._schedule, on_trace_ready=ready)
        self._profiler.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._profiler is not None:
            self._profiler.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._profiler is not None and self._profiler.step_num <= self.warm_up_steps:
            log.warning(
                f"the profile begins after {self.warm_up_steps} steps, and the training had "
                f"{self._profiler.step_num}; lower callback.profile.warm_up_steps"
            )
        self._stop(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop(trainer)

    def _stop(self, trainer: Any) -> None:
        """Stop the profiler if it runs: torch crashes at the end of a process that does not."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler, trainer.profiler = None, PassThroughProfiler()

    def _write(self, profiler: torch.profiler.profile, by: str) -> None:
        if profiler.step_num <= self.warm_up_steps:
            return
        table = profiler.key_averages().table(sort_by=by, row_limit=self.operators, max_name_column_width=90)
        self.file.write_text(table, encoding="utf-8")
        log.info(f"Where the time of a step goes: {self.file}")


@final
class HookRanges(Profiler):
    """Gives torch's profiler the name and the time of each hook that Lightning calls."""

    def __init__(self) -> None:
        super().__init__()
        self._ranges: dict[str, record_function] = {}

    def start(self, action_name: str) -> None:
        self._ranges[action_name] = record_function(action_name)
        self._ranges[action_name].__enter__()

    def stop(self, action_name: str) -> None:
        if action_name in self._ranges:  # one that was entered before the training began is unknown
            self._ranges.pop(action_name).__exit__(None, None, None)
