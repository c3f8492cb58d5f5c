"""Where the time of a training step goes: by its parts, by torch's operators and by Lightning's hooks."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import PassThroughProfiler, SimpleProfiler

from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)

PARTS = {  # Lightning's actions, by the last word of their names
    "data": ("train_dataloader_next", "batch_to_device"),
    "forward": ("training_step",),
    "backward": ("backward",),
    "optimizer": ("run_training_batch",),  # less forward and backward: gradient norm, clipping, the update
}
HOOKS = 20  # the slowest ones are shown
TABLE = """\
A training step, mean of {steps}, which the profilers slow: {milliseconds:.2f} ms

{parts}
Hooks of Lightning and callbacks, each with those that it calls
{hooks}
Operators of torch
{operators}
"""


@final
class Profile(pl.Callback):
    """Writes `profile.txt` into the run folder after enough steps, or when the training ends.

    Args:
        warm_up_steps: are not measured.
        steps: are measured by Lightning's SimpleProfiler and by torch.profiler.
        operators: rows of torch's table.
    """

    def __init__(self, *, folder: str, warm_up_steps: int, steps: int, operators: int) -> None:
        self.file = Path(folder) / "profile.txt"
        self.warm_up_steps, self.steps, self.operators = warm_up_steps, steps, operators
        self.steps_done = 0
        self._start = 0.0
        self._torch: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit" and not isinstance(trainer.profiler, PassThroughProfiler):
            raise UserError("callback=profile and trainer.profiler measure the same steps; leave out one of the two")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.steps_done += 1
        if self.steps_done == self.warm_up_steps:
            self._torch = torch.profiler.profile()
            self._torch.start()
            trainer.profiler, self._start = DeviceTimer(), time.perf_counter()
        elif self.steps_done == self.warm_up_steps + self.steps:
            self._finish(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.steps_done <= self.warm_up_steps:
            log.warning(
                f"the profile begins after {self.warm_up_steps} steps, and the training had {self.steps_done}; lower "
                "callback.profile.warm_up_steps"
            )
        self._finish(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._finish(trainer)

    def _finish(self, trainer: Any) -> None:
        """Stop both profilers if they run, and write what they measured."""
        if self._torch is None:
            return
        seconds = time.perf_counter() - self._start
        profiler, self._torch = self._torch, None
        profiler.stop()  # torch crashes at the end of a process that does not
        timer, trainer.profiler = trainer.profiler, PassThroughProfiler()
        steps = self.steps_done - self.warm_up_steps
        if steps == 0 or not trainer.is_global_zero:
            return
        hooks = {action: sum(times) for action, times in timer.recorded_durations.items()}
        slowest = dict(sorted(hooks.items(), key=lambda hook: -hook[1])[:HOOKS])
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        events = profiler.key_averages()
        table = TABLE.format(
            steps=steps,
            milliseconds=1e3 * seconds / steps,
            parts=lines(parts(hooks, seconds), seconds, steps),
            hooks=lines(slowest, seconds, steps),
            operators=events.table(sort_by=by, row_limit=self.operators, max_name_column_width=60),
        )
        self.file.write_text(table, encoding="utf-8")
        log.info(f"Where the time of a step goes: {self.file}")


@final
class DeviceTimer(SimpleProfiler):
    """Lightning's timer, made to wait for a GPU: its work would else be timed where something waits for it."""

    def start(self, action_name: str) -> None:
        synchronize()
        super().start(action_name)

    def stop(self, action_name: str) -> None:
        synchronize()
        super().stop(action_name)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def parts(hooks: dict[str, float], total: float) -> dict[str, float]:
    """Return the seconds of each part of a step; those in none of them are the rest."""
    seconds = {
        part: sum(time for action, time in hooks.items() if action.rpartition(".")[2] in names)
        for part, names in PARTS.items()
    }
    seconds["optimizer"] -= seconds["forward"] + seconds["backward"]
    return seconds | {"rest": total - sum(seconds.values())}


def lines(seconds: dict[str, float], total: float, steps: int) -> str:
    """Return milliseconds a step and shares."""
    rows = [f"{1e3 * time / steps:10.3f} ms {time / total:7.2%}  {name[:90]}\n" for name, time in seconds.items()]
    return "".join(rows)
