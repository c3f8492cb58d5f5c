"""Checks of a resumed run: its model must be that of the checkpoint, and all changes must be able to take effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq_attn.checkpoint.average import shapes
from seq2seq_attn.checkpoint.checkpoint_file import is_checkpoint_of
from seq2seq_attn.checkpoint.resume import CHOOSING, FIXED, LIMITS, OF_MODEL, Change, Resumed, makes_another_model
from seq2seq_attn.distributed.run_lock import BEST
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import typed
from seq2seq_attn.training.monitor import PLATEAU
from seq2seq_attn.training.translation_module import TranslationModule

OF_SHAPES = ("data", "tokenizer", *OF_MODEL)
TRAINING = {"loops", "callbacks", "optimizer_states", "lr_schedulers", "global_step", "resume"}
NAMED = 4  # differences, at most


def check_same_model(resumed: Resumed, module: TranslationModule) -> None:
    """Refuse a checkpoint of another model, of another vocabulary, or without a state of training."""
    file, checkpoint, changed = resumed
    if not checkpoint.keys() >= TRAINING:
        raise UserError(
            f"{file} holds no state of training, as an average or a published model does not, so no run resumes from "
            "it; give a checkpoint that train.py wrote"
        )
    tokens, weights = module.tokenizer.get_state(), module.state_dict()
    same_tokens = all(
        is_equal(checkpoint["tokenizer"].get(name), tokens[name]) for name in ("source_model", "target_model")
    )
    if not same_tokens or shapes(checkpoint["state_dict"]) != shapes(weights):
        causes = [str(change) for change in changed if may_change_shapes(change)]
        named = ", ".join(causes[:NAMED]) or f"its {'weights' if same_tokens else 'vocabulary'}"
        raise UserError(
            f"{file} holds another model or vocabulary than the run to train, by {named}; give the options and the "
            "data of its run, or leave out ckpt_path and resume"
        )


def is_equal(saved: Any, current: Tensor) -> bool:
    return isinstance(saved, Tensor) and saved.dtype == current.dtype and torch.equal(saved, current)


def may_change_shapes(change: Change) -> bool:
    """Whether it is an option of the model or its vocabulary; those with a fraction, as dropout, change no shape."""
    return change.key.partition(".")[0] in OF_SHAPES and not isinstance(change.new, float)


def check_changes(resumed: Resumed, run_dir: Path) -> None:
    """Refuse another model, options that cannot take effect in a resumed run, and limits that it has passed."""
    file, checkpoint, changed = resumed
    other_best = sorted((c for c in changed if c.key in CHOOSING), key=lambda change: CHOOSING.index(change.key))
    if other_best and is_checkpoint_of(file, run_dir):
        key, old, new, _ = other_best[0]
        raise UserError(
            f"{key}={new} would replace {run_dir}/checkpoints/{BEST}, which was chosen "
            + (f"without it; leave {key} out" if old is None else f"with {key}={old}; give {key}={old}")
            + ", or start a new run"
        )
    for change in changed:
        if makes_another_model(change):
            raise UserError(
                f"{file} holds another model than the run to train, by {change}; leave it as it was, or start a new run"
            )
        kinds = {change.old, change.new} if change.key == "scheduler._target_" else set()
        if change.key in FIXED or PLATEAU in kinds or starts_or_ends_momentum(change, checkpoint):
            raise UserError(
                f"{change.key}={typed(change.new)} cannot take effect in a resumed run: {file} was trained with "
                f"{typed(change.old)}; leave it as it was, or start a new run"
            )
        if change.key in LIMITS:
            check_limit(change, checkpoint, file)
        if change.key == "trainer.accumulate_grad_batches":
            check_accumulation(change, checkpoint, file)


def check_keeper(resumed: Resumed, config: dict[str, Any]) -> None:
    """Refuse to go on without the callback that has chosen best.ckpt, which the last weights would replace."""
    best = Path(config["paths"]["run_dir"]) / "checkpoints" / BEST
    if not is_checkpoint_of(resumed.file, Path(config["paths"]["run_dir"])) or not best.exists():
        return
    if has_keeper(resumed.checkpoint["config"]) and not has_keeper(config):
        raise UserError(
            f"callback.checkpoint, which has chosen {best}, is missing or switched off, so that the last weights would "
            "replace it; give callback and trainer.enable_checkpointing as they were, or start a new run"
        )


def has_keeper(config: dict[str, Any]) -> bool:
    kept = (config.get("callback") or {}).get("checkpoint")
    return bool(kept and config["trainer"]["enable_checkpointing"])


def starts_or_ends_momentum(change: Change, checkpoint: dict[str, Any]) -> bool:
    """Whether RMSprop would need a state that a checkpoint lacks, or the reverse."""
    kind = checkpoint["config"]["optimizer"]["_target_"]
    return change.key == "optimizer.momentum" and kind.endswith("RMSprop") and not (change.old and change.new)


def check_limit(change: Change, checkpoint: dict[str, Any], file: Path) -> None:
    if change.new in (None, -1) or change.key == "trainer.max_time":  # which may be over
        return
    trained, unit = checkpoint["global_step"], "step"
    if change.key == "trainer.max_epochs":
        trained, unit = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"], "epoch"
    if change.new < trained:
        raise UserError(
            f"{change.key}={change.new} is too few: {file} has reached {unit} {trained}; give {trained} or more, or "
            "start a new run; this one stays as it is"
        )


def check_accumulation(change: Change, checkpoint: dict[str, Any], file: Path) -> None:
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    done = progress["current"]["processed"]
    if done % change.new and not progress["is_last_batch"]:
        raise UserError(
            f"{change.key}={change.new} does not divide the {done} batches of its epoch that {file} was trained on; "
            "give a number that does"
        )
