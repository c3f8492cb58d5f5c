"""Where the time of a training step goes: by its parts, by Lightning's hooks and by torch's operators."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import PassThroughProfiler

from seq2seq_attn.callback.self_time import SelfTime
from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)

FORWARD, REST = "forward", "rest"
NAMED = 15  # hooks of the rest that have a line of their own
PARTS = {  # by the name of a hook
    "train_dataloader_next": "data", "batch_to_device": "data", FORWARD: FORWARD, "training_step": "loss",
    "backward": "backward", "optimizer_zero_grad": "optimizer", "configure_gradient_clipping": "optimizer",
    "optimizer_step": "optimizer", REST: REST,
}  # fmt: skip
TABLE = """\
A training step, mean of {steps} after the first {warm_up}: {total:.2f} ms

{parts}
The rest by hook, and Lightning's loop between them
{rest}
The loss holds its own gradient up to the decoder's output; clipping belongs to the optimizer.
"""


@final
class Profile(pl.Callback):
    """Writes `profile.txt` into the run folder, once enough steps are done or the training ends.

    Args:
        warm_up_steps: not looked at. steps: timed by their parts.
        operator_steps: then run under torch.profiler, which slows them. operators: lines of its table.
    """

    def __init__(self, *, folder: str, warm_up_steps: int, steps: int, operator_steps: int, operators: int) -> None:
        self.file = Path(folder) / "profile.txt"
        self.warm_up_steps, self.steps = warm_up_steps, steps
        self.operator_steps, self.operators = operator_steps, operators
        self.clock = SelfTime()
        self.steps_done = 0
        self._hooks: list[Any] = []
        self._torch: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        if not isinstance(trainer.profiler, PassThroughProfiler):
            raise UserError("callback=profile and trainer.profiler measure the same steps; leave out one of the two")
        trainer.profiler = self.clock

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._hooks = [
            pl_module.model.register_forward_pre_hook(lambda *_: self.clock.start(FORWARD)),
            pl_module.model.register_forward_hook(lambda *_: self.clock.stop(FORWARD)),
        ]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        timed = self.warm_up_steps + self.steps
        self.steps_done += 1
        if self.steps_done == self.warm_up_steps:
            self.clock.run(True)
        elif self.steps_done == timed:
            self.clock.run(False)
            self._torch = torch.profiler.profile()
            self._torch.start()
        elif self.steps_done == timed + self.operator_steps:
            self._finish(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._finish(trainer)

    def _finish(self, trainer: pl.Trainer) -> None:
        self.clock.run(False)
        for hook in self._hooks:
            hook.remove()
        operators = ""
        if self._torch is not None:
            self._torch.stop()
            events = self._torch.key_averages()
            by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
            operators = events.table(sort_by=by, row_limit=self.operators, max_name_column_width=60)
        steps = min(self.steps_done - self.warm_up_steps, self.steps)
        if steps > 0 and not self.file.exists() and trainer.is_global_zero:
            table = parts_table(dict(self.clock.seconds), steps, self.warm_up_steps)
            self.file.write_text(table + operators, encoding="utf-8")
            log.info(f"Where the time of a step goes: {self.file}")
        elif steps <= 0:
            log.warning(
                f"callback=profile begins after {self.warm_up_steps} steps, and the training had {self.steps_done}; "
                "lower callback.profile.warm_up_steps"
            )


def parts_table(seconds: dict[str, float], steps: int, warm_up: int) -> str:
    """Milliseconds of a step and shares, by part, and the rest by action."""
    parts, rest = dict.fromkeys(PARTS.values(), 0.0), {}
    for action, found in seconds.items():
        part = PARTS.get(action.rpartition(".")[2], REST)
        parts[part] += found
        if part == REST:
            rest[action] = found
    total = sum(seconds.values())

    def lines(of: dict[str, float]) -> str:
        rows = [f"{1e3 * s / steps:10.3f} ms {s / max(total, 1e-9):7.2%}  {name}\n" for name, s in of.items()]
        return "".join(rows)

    ordered = dict(sorted(rest.items(), key=lambda item: -item[1]))
    others = list(ordered)[NAMED:]
    if others:
        ordered[f"{len(others)} others"] = sum(ordered.pop(name) for name in others)
    return TABLE.format(
        steps=steps, warm_up=warm_up, total=1e3 * total / steps, parts=lines(parts), rest=lines(ordered)
    )
