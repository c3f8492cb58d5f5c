"""The best weights of a run, with which it is tested: best.ckpt, and the callback that chooses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.distributed.run_lock import BEST, LAST


def load_best(trainer: Any, module: Any, datamodule: Any, folder: Path) -> None:
    """Load the best weights of a run, after its last ones were saved and validated, if the training has not done so.

    A validation here counts in the choice of the best, though not for early stopping: with it `last.ckpt` is saved
    anew, and a run that goes on from there knows the best.
    """
    best, last = folder / BEST, folder / LAST
    kept = keeper_of_best(trainer)
    had_best, had_last = trainer.strategy.broadcast((best.exists(), last.exists()))
    counted = module.validated_step == trainer.global_step
    validated = counted and had_best
    if not (validated and had_last):
        trainer.save_checkpoint(last)
    if not validated:
        with counting_from_0(trainer):
            metrics = trainer.validate(module, datamodule=datamodule, verbose=False)  # nothing if limit_val_batches=0
        if not had_best or trainer.strategy.broadcast(improves(kept, metrics)):
            if kept is not None and kept.save_top_k and metrics and kept.monitor in metrics[0]:
                remember(kept, best, trainer.callback_metrics[kept.monitor])
            trainer.save_checkpoint(best)
        if metrics and not counted:
            count_in_others(trainer, module, kept)
        if metrics:
            trainer.save_checkpoint(last)
    elif kept is None or kept.best_model_score is None:  # best.ckpt is of an earlier part of the run
        trainer.save_checkpoint(best)
    module.load_state_dict(read_checkpoint(best)["state_dict"])


def keeper_of_best(trainer: Any) -> Any:
    """Return the callback that writes best.ckpt, or None if there is none."""
    name = Path(BEST).stem
    return next((one for one in trainer.checkpoint_callbacks if getattr(one, "filename", None) == name), None)


def remember(kept: Any, best: Path, score: Tensor) -> None:
    """Tell the callback that `best` holds the weights of this score, as if it had saved them."""
    kept.best_model_path = kept.kth_best_model_path = str(best)
    kept.best_model_score = kept.kth_value = kept.current_score = score
    kept.best_k_models = {str(best): score}


def count_in_others(trainer: Any, module: Any, kept: Any) -> None:
    """Count a validation after training as one within it in all callbacks that keep checkpoints, `kept` excepted."""
    known = {"step", "epoch", *trainer.callback_metrics}
    before, trainer.state.fn = trainer.state.fn, TrainerFn.FITTING
    try:
        for callback in trainer.checkpoint_callbacks:
            if callback is not kept and getattr(callback, "monitor", None) in known:
                callback.on_validation_end(trainer, module)
    finally:
        trainer.state.fn = before


@contextmanager
def counting_from_0(trainer: Any) -> Iterator[None]:
    """Log a validation after training at the step of the last update, as within it. Private of Lightning 2.6.6."""
    loop = trainer.fit_loop.epoch_loop
    before, loop._batches_that_stepped = loop._batches_that_stepped, max(0, loop._batches_that_stepped - 1)
    try:
        yield
    finally:
        loop._batches_that_stepped = before


def improves(kept: Any, metrics: list[dict[str, float]]) -> bool:
    """Return whether a validation is better than the best one that this callback knows, if it knows one."""
    if kept is None or kept.best_model_score is None:
        return True
    if not metrics or kept.monitor not in metrics[0]:
        return False
    sign = 1 if kept.mode == "max" else -1
    return sign * metrics[0][kept.monitor] > sign * float(kept.best_model_score)
