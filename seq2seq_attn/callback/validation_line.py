"""A line for each validation, and one that says why the training ends: on the screen and in train.log."""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from typing import Any, final

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, Timer
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason

from seq2seq_attn.checkpoint.best import keeper_of_best
from seq2seq_attn.errors import one_line

WIDTHS = {"lr": 8}  # of columns; with two blanks before each, the default ones fit 80 characters
WIDTH = 7  # of all others, or that of their names

log = logging.getLogger(__name__)


@final
class ValidationLine(pl.Callback):
    """Logs a row of a table at each validation, and the header before the first of a process.

    The columns are the epoch, the step, `train/loss` of the last step, `val/loss`, the figure that chooses the best
    checkpoint, the learning rate, `train/tokens_per_second`, and the time until the first limit of the run.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._first_step = 0
        self._has_header = False
        self._trained: dict[str, Any] = {}  # figures of the last update, for a validation after the training

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._began, self._first_step, self._has_header = time.monotonic(), trainer.global_step, False
        if trainer.max_steps > (total := pl_module.total_steps):
            log.info(
                f"trainer.max_epochs={trainer.max_epochs} ends the training after {total:,} updates, before "
                f"trainer.max_steps={trainer.max_steps:,}; trainer.max_epochs=-1 lets it go on"
            )

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        limit = trainer.max_epochs if trainer.max_epochs not in (None, -1) else ""
        epoch_width = len(f"epoch {limit}/{limit}")
        shown = self._shown(trainer, pl_module)
        if not self._has_header:
            log.info(line("epoch".ljust(epoch_width), {name: name for name in shown}))
            self._has_header = True
        number = f"{pl_module.epoch_number:{len(str(limit))}}"
        log.info(line(f"epoch {number}/{limit}".rstrip("/").ljust(epoch_width), shown))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._trained = {name: x for name, x in trainer.callback_metrics.items() if name.startswith("train/")}

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        log.info(f"The training ends {position(trainer, pl_module)}: {reason(trainer, pl_module.planned_steps)}")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if trainer.state.fn == "fit" and isinstance(exception, Exception):
            what = one_line(exception) or type(exception).__name__
            began = f"fails {position(trainer, pl_module)}" if self._began else "does not start"
            log.error(f"The training {began}: {what}")

    def _shown(self, trainer: Any, pl_module: Any) -> dict[str, str]:
        """Return the cells after the epoch, by column."""
        metrics = self._trained | trainer.callback_metrics
        best: Any = getattr(keeper_of_best(trainer), "monitor", None)
        figures = dict.fromkeys(("train/loss", "val/loss", best if best in metrics else "val/bleu"))
        speed = metrics.get("train/tokens_per_second")
        return {
            "step": str(trainer.global_step),
            **{name.removeprefix("train/"): f"{metrics[name]:#.4g}" if name in metrics else "-" for name in figures},
            "lr": f"{trainer.optimizers[0].param_groups[0]['lr']:.2e}",
            "tokens/s": "-" if speed is None else f"{speed:,.0f}",
            "left": self._time_left(trainer, pl_module),
        }

    def _time_left(self, trainer: Any, pl_module: Any) -> str:
        """Return the time to the end at the pace of this process, validations included, or to `trainer.max_time`."""
        if trainer.state.fn != "fit":
            return str(timedelta())
        steps, to_go = trainer.global_step - self._first_step, pl_module.total_steps - trainer.global_step
        pace = (time.monotonic() - self._began) / max(steps, 1)
        limits = [timer.time_remaining() for timer in trainer.callbacks if isinstance(timer, Timer)]
        left = min([pace * to_go, *(limit for limit in limits if limit is not None)])
        return str(timedelta(seconds=max(0, round(left)))) if math.isfinite(left) else "-"


def line(epoch: str, cells: dict[str, str]) -> str:
    """Return a row whose cells are aligned with those of all other rows."""
    return "  ".join([epoch, *(cell.rjust(WIDTHS.get(name, max(WIDTH, len(name)))) for name, cell in cells.items())])


def position(trainer: Any, pl_module: Any) -> str:
    return f"in epoch {pl_module.epoch_number} after step {trainer.global_step:,}"


def reason(trainer: Any, planned_steps: int | float | None = None) -> str:
    """Return what has ended the training.

    Args:
        planned_steps: for which the schedule of the learning rate was made; None: for any number.
    """
    if trainer.limit_train_batches == 0:
        return "trainer.limit_train_batches=0 leaves nothing to train on"
    if trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps:
        return f"trainer.max_steps={trainer.max_steps} is reached"
    if trainer.max_epochs not in (None, -1) and trainer.current_epoch >= trainer.max_epochs:
        return f"trainer.max_epochs={trainer.max_epochs} is reached"
    for callback in trainer.callbacks:
        left = callback.time_remaining() if isinstance(callback, Timer) else None
        if left is not None and left <= 0:
            limit = f"trainer.max_time is reached, after {timedelta(seconds=round(callback.time_elapsed()))}"
            if planned_steps is None or trainer.global_step >= planned_steps:
                return limit
            return f"{limit}, before the schedule of the learning rate ends, at step {planned_steps:,}"
        if isinstance(callback, EarlyStopping) and callback.stopping_reason == EarlyStoppingReason.PATIENCE_EXHAUSTED:
            if callback.wait_count < callback.patience:
                continue  # that stop was put off by trainer.min_epochs, and then the figure improved
            return (
                f"early stopping, {callback.monitor} has not improved in {callback.wait_count} validations; its best "
                f"is {callback.best_score:#.4g}"
            )
        if isinstance(callback, EarlyStopping) and callback.stopping_reason_message:
            return f"early stopping, {callback.stopping_reason_message.partition(' Signaling')[0]}"
    return "a callback has stopped it"
