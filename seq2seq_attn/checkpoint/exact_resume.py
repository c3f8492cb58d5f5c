"""What a checkpoint needs beside Lightning's own state, so that a resumed run is the run that was never stopped."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seq2seq_attn.checkpoint.checkpoint_file import check_plain, damage, is_checkpoint_of, updates_of
from seq2seq_attn.checkpoint.resume import Change, changes
from seq2seq_attn.checkpoint.run_length import Position
from seq2seq_attn.data.data_module import batches_of_updates
from seq2seq_attn.distributed.run_lock import BEST
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.logger.csv_logger import CsvLogger

log = logging.getLogger(__name__)
NOTHING = {"ready": 0, "started": 0, "processed": 0, "completed": 0}
EMA, TRANSLATION_TABLE = "EMA", "TranslationTable"  # keys of these callbacks among the states of all
SEEN_BY_PLATEAU = ("best", "mode_worse", "num_bad_epochs", "cooldown_counter")  # in the state of torch's schedule
BEGUN = {"ready": 1, "started": 1, "processed": 0, "completed": 0}


@final
class ExactResume(pl.Callback):
    """A callback that comes before all that save, since they do so from within their hooks.

    A checkpoint is taken between two batches, before, within or after a validation. Lightning guesses from its counters
    which it was, and is wrong for the first two, so they are saved as it understands them. A validation that had begun
    is run again from its first batch. Batches whose gradients were accumulated for an update that was not made yet are
    trained on again, since no checkpoint has gradients; the baseline of hard attention is saved as it was before them.
    If a validation after one of them was finished, it is not run again, since callbacks and schedule have counted it.
    """

    def __init__(self) -> None:
        self._validating = False
        self._loaded: dict[str, Any] = {}
        self._changes: list[Change] = []
        self._scheduled: int | None = None
        self._surplus: list[Path] = []
        self._baseline: dict[str, torch.Tensor] = {}  # before the batches of the update that was begun last
        self._validated_batch = 0  # of this epoch, from 1: the last after which a validation is over
        self._counted_batch = 0  # to be trained on again, but not validated again

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        loops = checkpoint["loops"]["fit_loop"]
        progress, done = loops["epoch_loop.batch_progress"], batches_of_updates(trainer)
        begun = self._validating and done == progress["current"]["processed"]  # or else it comes again with its batch
        if done < progress["current"]["processed"]:
            checkpoint["state_dict"] |= self._baseline
        is_counted = done < self._validated_batch <= progress["current"]["processed"]
        count_whole_updates(progress, done)
        validation = loops["epoch_loop.val_loop.batch_progress"]
        for count in ("total", "current"):
            validation[count] = dict(BEGUN if begun else NOTHING)
        tables = [logger for logger in trainer.loggers if isinstance(logger, CsvLogger)]
        for table in tables:
            table.sync()
        checkpoint["resume"] = {
            "rows": sum(table.rows for table in tables),
            "should_stop": trainer.should_stop,
            "validated_step": pl_module.validated_step,
            "batches": trainer.num_training_batches,
            "counted_batch": self._validated_batch if is_counted else self._counted_batch,
            "metrics": {name: value.detach().cpu() for name, value in trainer.callback_metrics.items()},
        }

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._loaded = checkpoint["resume"]
        averaged = checkpoint["callbacks"].get(EMA)
        if averaged and not any(callback.state_key == EMA for callback in trainer.callbacks):
            with torch.no_grad():  # the optimizer's state is that of the weights, and not of their average
                for name, parameter in pl_module.named_parameters():
                    parameter.copy_(averaged["raw"].get(name, parameter))
        if is_own(trainer):
            for callback in trainer.checkpoint_callbacks:
                self._surplus += adopt_files(callback, checkpoint, trainer)
        else:  # the best files, which this run must not delete, and the best score are another run's
            for callback in trainer.callbacks:
                if isinstance(callback, Checkpoint | EarlyStopping):
                    checkpoint["callbacks"].pop(callback.state_key, None)
            forget_validations(checkpoint)
        resumed = Path(trainer.ckpt_path).resolve()  # the same command may have to be repeated
        self._surplus = [file for file in self._surplus if file.resolve() != resumed]
        self._changes = changes(checkpoint["config"], pl_module.config)
        if self._changes:
            reopen_epoch(checkpoint, trainer)
            self._scheduled = adopt(self._changes, checkpoint, trainer, pl_module)
        count_for_devices(checkpoint, trainer)  # trainer.devices=auto may find others without a change of an option
        state = checkpoint[type(trainer.datamodule).__qualname__]
        read = trainer.datamodule.batches_read(state)
        if is_own(trainer) and state.get("devices") == trainer.world_size:  # other devices count other batches
            self._counted_batch = self._loaded.get("counted_batch", 0)
        pl_module.resumed_at = Position(checkpoint["global_step"], state["epoch"], read)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        check_states(trainer)  # before anything in the folder is replaced
        run_state = self._loaded if is_own(trainer) else {}
        for logger in trainer.loggers:
            if isinstance(logger, CsvLogger):
                logger.keep(run_state.get("rows", 0))
        stopped = run_state.get("should_stop", False)
        if self._changes:  # the limit that stopped it may have changed
            early = [callback for callback in trainer.callbacks if isinstance(callback, EarlyStopping)]
            stopped = stopped and any(callback.wait_count >= callback.patience for callback in early)
        trainer.should_stop = trainer.should_stop or stopped
        pl_module.validated_step = run_state.get("validated_step", -1)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(trainer, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._loaded:  # nothing was left to train, and a checkpoint will be saved
            self._begin(trainer, pl_module)
        self._delete_surplus(trainer)

    def _begin(self, trainer: Any, pl_module: Any) -> None:
        """Put in force what was loaded."""
        restore_metrics(trainer, self._loaded.get("metrics", {}))
        if self._scheduled is not None:
            reschedule(trainer, self._scheduled, pl_module.first_groups)
        if self._changes:
            say_changes(self._changes, trainer, pl_module)
            if is_own(trainer):
                warn_of_other_figures(self._changes, pl_module.config)
        self._loaded, self._changes, self._scheduled = {}, [], None

    def _delete_surplus(self, trainer: Any) -> None:
        """Delete the files that the run does not keep, once the callbacks have begun the training without an error."""
        if self._surplus and trainer.is_global_zero:
            delete(self._surplus, trainer.global_step)
        self._surplus = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._delete_surplus(trainer)
        correct_counters(trainer)
        if batches_of_updates(trainer) == trainer.fit_loop.epoch_loop.batch_progress.current.processed:
            baseline = pl_module.reinforce.state_dict(prefix="reinforce.")
            self._baseline = {name: value.clone() for name, value in baseline.items()}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._counted_batch == batch_idx + 1:
            trainer.fit_loop.epoch_loop._skip_next_val = True  # private of Lightning, as of 2.6.6
            self._validated_batch, self._counted_batch = self._counted_batch, 0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._validated_batch = 0

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.fit_loop._restarting = False  # see correct_counters

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._validating = trainer.state.fn == "fit"
        if not trainer.sanity_checking:
            self._delete_surplus(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._validating = False
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._validated_batch = trainer.fit_loop.epoch_loop.batch_progress.current.processed


def check_states(trainer: Any) -> None:
    """Refuse a state of a callback or a schedule that no checkpoint may hold, before the first step.

    Raises:
        UserError: naming it.
    """
    schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
    for part in (*trainer.callbacks, *schedules):
        check_plain(part.state_dict(), type(part).__name__)


def forget_validations(checkpoint: dict[str, Any]) -> None:
    """Leave out what a plateau schedule and the table of translations hold of another run's validations."""
    checkpoint["callbacks"].pop(TRANSLATION_TABLE, None)
    for schedule in checkpoint["lr_schedulers"]:
        for name in SEEN_BY_PLATEAU:
            schedule.pop(name, None)


def adopt_files(callback: Any, checkpoint: dict[str, Any], trainer: Any) -> list[Path]:
    """Match the files that a callback keeps, by a checkpoint, with those in its folder, and return the ones to delete.

    The run may have gone further since this checkpoint, from which it now resumes: files that it has deleted since are
    forgotten, and those of later validations are not of the run that follows.
    """
    state, step = checkpoint["callbacks"].get(callback.state_key), checkpoint["global_step"]
    later = later_files(callback, step, Path(trainer.default_root_dir))
    if state is None:
        return later
    follow_folder(state, callback.dirpath)
    remember_last(state, callback, checkpoint, trainer)
    kept = state["best_k_models"]
    gone = trainer.strategy.broadcast([file for file in kept if not Path(file).exists()])
    without_best = trainer.strategy.broadcast(trainer.is_global_zero and is_without_best(state, step))
    if without_best or (kept and len(gone) == len(kept)):
        checkpoint["callbacks"].pop(callback.state_key)
        return later
    return later + forget(state, callback, gone)


def remember_last(state: dict[str, Any], callback: Any, checkpoint: dict[str, Any], trainer: Any) -> None:
    """Have a callback remember the file that it saved after the checkpoint, in the same validation.

    `best.ckpt` is saved before the files that other callbacks keep.
    """
    step = checkpoint["global_step"]
    if "{step" not in (callback.filename or "") or checkpoint["resume"].get("validated_step") != step:
        return
    file, figures = callback.format_checkpoint_name({"step": step}), checkpoint["resume"].get("metrics", {})
    score = torch.tensor(step) if callback.monitor == "step" else figures.get(callback.monitor)
    is_there = trainer.strategy.broadcast(Path(file).exists())
    if is_there and score is not None:
        state["best_k_models"].setdefault(file, score)


def later_files(callback: Any, step: int, run_dir: Path) -> list[Path]:
    """Return the files of validations after a step of a callback that keeps a number of them, and not all.

    A folder of the user's own may have those of other runs, too, so that none of its files is named.
    """
    if not is_checkpoint_of(Path(callback.dirpath or "") / BEST, run_dir):
        return []
    if getattr(callback, "save_top_k", 0) < 1 or "{step" not in (callback.filename or ""):
        return []
    updates = {file: updates_of(file) for file in Path(callback.dirpath).glob("*step=*.ckpt")}
    later = sorted((file for file in updates if updates[file] > step), key=updates.__getitem__)
    return [file for file in later if str(file) == callback.format_checkpoint_name({"step": updates[file]})]


def is_without_best(state: dict[str, Any], step: int) -> bool:
    """Whether the best checkpoint of a callback at a step is gone, damaged or replaced since; a warning says so."""
    file = Path(state["best_model_path"])
    if file.name != BEST:  # it has none yet, or is the history
        return False
    why = damage(file) if file.exists() else "is gone"
    if why is None and (newer := updates_of(file)) > step:
        why = f"is now that of step {newer:,}, and the run resumes from step {step:,}"
    if why is not None:
        log.warning(
            f"{file} {why}; until there the best {state['monitor']} was {float(state['best_model_score']):.4g}; the "
            "best from there on is kept and tested"
        )
    return why is not None


def follow_folder(state: dict[str, Any], folder: str) -> None:
    """Name the files that a checkpoint callback keeps by their folder now: in another one it would forget the best."""
    if state["dirpath"] in (None, folder):
        return
    before = state["dirpath"]

    def moved(path: str) -> str:
        return folder + path.removeprefix(before) if path.startswith(before) else path

    state["dirpath"] = folder
    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = moved(state[name])
    state["best_k_models"] = {moved(path): score for path, score in state["best_k_models"].items()}


def forget(state: dict[str, Any], callback: Any, gone: list[str]) -> list[Path]:
    """Have a callback forget files that are gone and, if it now keeps fewer, the surplus, which is returned.

    Lightning, which deletes a checkpoint only if it has exactly as many as it keeps, would delete none from then on,
    and it would count those that are gone. It names the worst file only once it has as many as it keeps.
    """
    kept, folder = state["best_k_models"], Path(callback.dirpath)
    present = [file for file in kept if file not in gone]
    ordered = sorted(present, key=lambda file: float(kept[file]), reverse=callback.mode == "max")
    number = callback.save_top_k if callback.save_top_k > 0 else len(ordered)
    ordered, surplus = ordered[:number], ordered[number:]
    fills_up = len(ordered) == callback.save_top_k > 0 and state["kth_best_model_path"] not in kept
    is_first = not ordered or state["best_model_path"] == ordered[0]
    if is_first and not (gone or surplus or fills_up):
        return []
    state["best_k_models"] = {file: score for file, score in kept.items() if file in ordered}
    state["best_model_path"], state["kth_best_model_path"] = ordered[0], ordered[-1]
    state["best_model_score"], state["kth_value"] = kept[ordered[0]], kept[ordered[-1]]
    return [Path(file) for file in surplus if Path(file).parent == folder]


def delete(surplus: list[Path], step: int) -> None:
    """Delete checkpoints, and say which."""
    for file in surplus:
        file.unlink(missing_ok=True)
    names = ", ".join(file.name for file in surplus)
    log.info(f"Deleted, since the run, from step {step:,} on, does not keep them: {names}")


def adopt(changed: list[Change], checkpoint: dict[str, Any], trainer: Any, pl_module: Any) -> int | None:
    """Put the changed options into the state that Lightning is about to restore.

    Returns:
        The steps of a schedule that is to be computed anew up to here; None for one that follows a metric.
    """
    states = checkpoint["callbacks"]
    for callback in trainer.callbacks:
        if isinstance(callback, EarlyStopping) and callback.state_key in states:
            states[callback.state_key]["patience"] = callback.patience
    empty: dict[str, Any] = {"hidden_matrices": []} if "hidden_matrices" in named_arguments(pl_module.optimizer) else {}
    fresh = pl_module.optimizer([nn.Parameter(torch.zeros(()))], **empty)
    keys = {change.key for change in changed}
    options = {name: value for name, value in fresh.param_groups[0].items() if f"optimizer.{name}" in keys}
    groups: list[dict[str, Any]] = checkpoint["optimizer_states"][0]["param_groups"]
    own = pl_module.parameter_groups()
    own += [{}] * (len(groups) - len(own))  # Muon's second group has no options of its own
    for group, its_own in zip(groups, own, strict=True):
        group |= {name: value for name, value in options.items() if name not in its_own}
    (schedule,) = checkpoint["lr_schedulers"]
    if pl_module.scheduler.func is not ReduceLROnPlateau:
        checkpoint["lr_schedulers"] = []
        return int(schedule["last_epoch"])
    as_many = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(()))]} for _ in groups])
    state = pl_module.scheduler(as_many).state_dict()
    named = {"min_lrs": "min_lr", "default_min_lr": "min_lr"}  # torch's names of an option
    schedule |= {name: value for name, value in state.items() if f"scheduler.{named.get(name, name)}" in keys}
    return None


def reopen_epoch(checkpoint: dict[str, Any], trainer: Any) -> None:
    """Resume an epoch that max_steps or max_time has cut short, which Lightning counts as over."""
    state = checkpoint[type(trainer.datamodule).__qualname__]
    loops = checkpoint["loops"]["fit_loop"]
    epochs = loops["epoch_progress"]["current"]
    over = 0 < epochs["started"] == epochs["processed"]
    done = loops["epoch_loop.batch_progress"]["current"]["processed"]
    if state["batch"] == 0 and over and done < checkpoint["resume"].get("batches", state["batches"]):
        for count in ("total", "current"):
            for stage in ("processed", "completed"):
                loops["epoch_progress"][count][stage] -= 1
        state |= {"epoch": state["epoch"] - 1, "batch": done}
        trainer.datamodule.load_state_dict(state)


def count_for_devices(checkpoint: dict[str, Any], trainer: Any) -> None:
    """Count the batches that were read in this epoch as those of the present devices."""
    read = trainer.datamodule.batches_read(checkpoint[type(trainer.datamodule).__qualname__])
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    if read and read != progress["current"]["processed"]:
        if read % trainer.accumulate_grad_batches and not progress["is_last_batch"]:
            raise UserError(
                f"{read} batches of this epoch were read by each device, which trainer.accumulate_grad_batches="
                f"{trainer.accumulate_grad_batches} does not divide; continue with the devices that the run had"
            )
        more = read - progress["current"]["processed"]
        for count in ("total", "current"):
            progress[count] = {stage: number + more for stage, number in progress[count].items()}


def reschedule(trainer: Any, steps: int, first_groups: list[dict[str, Any]]) -> None:
    """Advance a schedule that is a function of the step through all steps, from the first on.

    Args:
        first_groups: parameter groups of the new optimizer, in which some schedules keep their options.
    """
    (schedule,) = (config.scheduler for config in trainer.lr_scheduler_configs)
    for group, first in zip(schedule.optimizer.param_groups, first_groups, strict=True):
        group |= {name: value for name, value in first.items() if name not in schedule.optimizer.defaults}
    for group, rate in zip(schedule.optimizer.param_groups, schedule.get_last_lr(), strict=True):
        group["lr"] = rate
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*`lr_scheduler.step\\(\\)` before `optimizer.step\\(\\)`.*")
        for _ in range(steps):
            schedule.step()


def say_changes(changed: list[Change], trainer: Any, pl_module: Any) -> None:
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    planned = "total_steps" in named_arguments(pl_module.scheduler)
    schedule = f", its schedule is computed over {pl_module.total_steps:,} steps" if planned else ""
    values = ", ".join(map(str, changed))
    log.info(f"From step {trainer.global_step:,} on: {values}; the learning rate is {rate:.3g}{schedule}")


def warn_of_other_figures(changed: list[Change], config: dict[str, Any]) -> None:
    """Warn of options with which a validation scores otherwise than those by which best.ckpt was chosen until now."""
    monitor = config["monitor"]
    metric = monitor.removeprefix("val/")
    of_text = (f"metric.{metric}.", "search.") if metric in config["metric"] else ()
    for change in changed:
        if change.key.startswith(("val_sentences", "trainer.limit_val_batches", *of_text)):
            log.warning(
                f"{change}: {monitor} from here on does not compare with that of earlier validations, by which {BEST} "
                "was chosen; leave the option as it was, or start a new run"
            )
            return


def count_whole_updates(progress: dict[str, Any], done: int) -> None:
    """Leave out a batch that was fetched, but not worked on, and those of an update that was not made.

    Args:
        done: batches of this epoch whose updates were made.
    """
    current = progress["current"]
    progress["is_last_batch"] = progress["is_last_batch"] and current["ready"] == done
    undone = current["processed"] - done
    for count in ("total", "current"):
        number = progress[count]["processed"] - undone
        progress[count] = {"ready": number, "started": number, "processed": number, "completed": number}


def restore_metrics(trainer: Any, metrics: dict[str, torch.Tensor]) -> None:
    """Restore the figures that were logged last, which callbacks read. Private of Lightning, as of 2.6.6."""
    trainer._logger_connector._callback_metrics.update(metrics)


def correct_counters(trainer: Any) -> None:
    """Correct what Lightning counts once too often after a validation. Private of Lightning, as of 2.6.6.

    While `_restarting` is set, an epoch ends without its schedule's step.
    """
    trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step
    trainer.fit_loop._restarting = False


def is_own(trainer: Any) -> bool:
    """Whether the run resumes from a checkpoint of its own folder."""
    return bool(trainer.ckpt_path) and is_checkpoint_of(Path(trainer.ckpt_path), Path(trainer.default_root_dir))
