"""SIGTERM, SIGHUP and SIGINT: save after the current update and leave with 143, 129 or 130, on all ranks alike.

In a Slurm job SIGUSR1 does the same, with 138; `#SBATCH --signal=USR1@90` sends it before the time limit.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, final

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig

from seq2seq_attn.callback.autosave import agreed, is_between_updates, save_last
from seq2seq_attn.options import in_sweep
from seq2seq_attn.paths import typed
from seq2seq_attn.process import ENDING, drop_closed_terminal, leave

REPEAT_SECONDS = 1.0  # a launcher passes on a signal that the whole group has received already

log = logging.getLogger(__name__)


@final
class StopOnSignal(pl.Callback):
    """A signal to any rank stops all of them at the same update, or between the same two batches of a validation.

    A test, and a validation after training, leave at once, because there is nothing to save. A second SIGINT leaves at
    once everywhere.

    Args:
        folder: of the checkpoints.
    """

    def __init__(self, *, folder: str) -> None:
        self.folder = Path(folder)
        self._trainer: Any = None
        self._received = self._agreed = 0
        self._since = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._received = self._agreed = 0
        self._install(trainer, self._note)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._agreed = agreed(trainer, self._received)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if is_between_updates(trainer):
            self._stop(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit":
            self._stop(trainer)
        else:
            self._install(trainer, leave)

    def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.state.fn == "fit":
            self._agreed = agreed(trainer, self._received)
            self._stop(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._install(trainer, leave)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._agreed = agreed(trainer, self._received)
        self._stop(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._received:
            leave(self._received, None)

    def _stop(self, trainer: Any) -> None:
        """Save, and leave."""
        if not self._agreed:
            return
        save_last(trainer, self.folder)
        if trainer.is_global_zero:
            log.warning(
                f"{signal.Signals(self._agreed).name}: the run is saved at step {trainer.global_step}; continue "
                f"{what_to_continue()}"
            )
        leave(self._agreed, None)

    def _install(self, trainer: Any, handler: Callable[[int, FrameType | None], None]) -> None:
        """Replace Lightning's handlers, which save nothing and wait for other ranks; Lightning restores the old ones.

        A signal that is ignored, as SIGINT is for a script's background process, stays ignored.
        """
        self._trainer = trainer
        if threading.current_thread() is threading.main_thread():
            warning = (signal.SIGUSR1,) if "SLURM_JOB_ID" in os.environ else ()
            for signum in (*ENDING, signal.SIGINT, *warning):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        drop_closed_terminal()
        now = time.monotonic()
        if not self._received:
            self._received, self._since = signum, now
        elif signum == signal.SIGINT and now - self._since > REPEAT_SECONDS:
            for process in getattr(self._trainer.strategy.launcher, "procs", []):
                process.kill()
            os._exit(128 + signum)


def what_to_continue() -> str:
    """Return the end of a sentence that says what to continue and how; a job is continued by its sweep."""
    if in_sweep():
        return f"the sweep with resume=auto hydra.sweep.dir={typed(str(HydraConfig.get().sweep.dir))}"
    return "it with resume=auto and its hydra.run.dir"
