"""What a checkpoint needs beside Lightning's own state, so that a run that goes on from it is the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl

from seq2seq_attn.training.csv_logger import CsvLogger

NOTHING = {"ready": 0, "started": 0, "processed": 0, "completed": 0}
BEGUN = {"ready": 1, "started": 1, "processed": 0, "completed": 0}


@final
class ExactResume(pl.Callback):
    """Stands before all other callbacks, since they save from within their hooks.

    A checkpoint is taken between two batches, before, within or after a validation. Lightning guesses from its counters
    which it was, and is wrong for the first two; so they are saved as it takes them for what they are. A validation
    that had begun is run again from its first batch.
    """

    def __init__(self) -> None:
        self._validating = False
        self._loaded: dict[str, Any] = {}

    def on_save_checkpoint(
        self, trainer: Any, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        loops = checkpoint["loops"]["fit_loop"]
        settle(loops["epoch_loop.batch_progress"])
        validation = loops["epoch_loop.val_loop.batch_progress"]
        for count in ("total", "current"):
            validation[count] = dict(BEGUN if self._validating else NOTHING)
        tables = [logger for logger in trainer.loggers if isinstance(logger, CsvLogger)]
        for table in tables:
            table.sync()
        checkpoint["resume"] = {
            "rows": sum(table.rows for table in tables),
            "should_stop": trainer.should_stop,
            "validated_step": getattr(pl_module, "validated_step", -1),
            "metrics": {name: value.detach().cpu() for name, value in trainer.callback_metrics.items()},
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._loaded = checkpoint.get("resume", {})
        if not is_own(trainer):  # its best files are another run's, which this one must not delete
            for callback in trainer.checkpoint_callbacks:
                for key in (callback.state_key, callback._legacy_state_key):
                    checkpoint["callbacks"].pop(key, None)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        own = self._loaded if is_own(trainer) else {}
        for logger in trainer.loggers:
            if isinstance(logger, CsvLogger):
                logger.keep(own.get("rows", 0))
        trainer.should_stop = trainer.should_stop or own.get("should_stop", False)
        pl_module.validated_step = own.get("validated_step", -1)

    def on_train_start(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        """A schedule reads the last validation, which may have been before the run was stopped."""
        trainer._logger_connector._callback_metrics.update(self._loaded.get("metrics", {}))

    def on_train_batch_start(
        self, trainer: Any, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Lightning counts the batch it goes on from once too often if it was validated after."""
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step
        trainer.fit_loop._restarting = False  # or the epoch ends without its schedule's step

    def on_train_epoch_end(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        trainer.fit_loop._restarting = False

    def on_validation_start(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        self._validating = trainer.state.fn == "fit"

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._validating = False


def settle(progress: dict[str, Any]) -> None:
    """A batch that was fetched, but not worked on, is left out."""
    fetched = progress["current"]["ready"] > progress["current"]["processed"]
    progress["is_last_batch"] = progress["is_last_batch"] and not fetched
    for count in ("total", "current"):
        done = progress[count]["processed"]
        progress[count] = {"ready": done, "started": done, "processed": done, "completed": done}


def is_own(trainer: Any) -> bool:
    """Whether the run goes on from a checkpoint of its own folder."""
    folder, file = Path(trainer.default_root_dir) / "checkpoints", trainer.ckpt_path
    return bool(file) and Path(file).resolve().is_relative_to(folder.resolve())
