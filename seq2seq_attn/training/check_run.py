"""Checks before a run trains: options that do not fit the data, the model or the number of batches."""

from __future__ import annotations

import glob
import logging
import math
import os
import re
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.checkpoint.checkpoint_file import is_checkpoint_of
from seq2seq_attn.checkpoint.resume import Resumed
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.run_lock import BEST, is_in
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.paths import given_path
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.mbr import MBRSearch
from seq2seq_attn.search.search import Search
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.check_config import is_one_sided
from seq2seq_attn.training.check_resumed import check_changes, check_keeper, check_same_model
from seq2seq_attn.training.monitor import OF_LINKS, PLATEAU
from seq2seq_attn.training.translation_module import TranslationModule

log = logging.getLogger(__name__)
TOO_LONG = 0.01  # share of the references that the limits of the search may cut


def check_run(module: TranslationModule, datamodule: TranslationDataModule, resumed: Resumed | None) -> None:
    """Refuse what the model cannot read, or cannot resume from, before anything is written."""
    if resumed is not None:
        check_same_model(resumed, module)
        check_changes(resumed, Path(module.config["paths"]["run_dir"]))
        check_keeper(resumed, module.config)
    check_kept_folders(module.config, resumed)
    check_validation(module.config, datamodule.corpus.splits)
    check_link_figure(module.config, datamodule.links)
    check_positions(module.model)
    if resumed is None:
        check_tied(module.config, module.tokenizer)
    check_lengths(module.model.max_length, datamodule.longest)
    if resumed is None and not is_one_sided(module.config):
        warn_of_limits(*limits_of(module.search), datamodule)


def check_kept_folders(config: dict[str, Any], resumed: Resumed | None) -> None:
    """Refuse to start a run that keeps checkpoints in another folder if that has files with such names.

    Lightning would replace those of another run, and delete them as if they were its own.
    """
    run_dir = Path(config["paths"]["run_dir"])
    continues = resumed is not None and is_checkpoint_of(resumed.file, run_dir)
    if continues or not config["trainer"]["enable_checkpointing"]:
        return
    for name, callback in (config.get("callback") or {}).items():
        counts_versions = callback.get("enable_version_counter") is not False
        if counts_versions or callback.get("save_top_k") == 0 or callback.get("dirpath") is None:
            continue
        folder = given_path(callback["dirpath"], f"callback.{name}.dirpath")
        names = re.sub(r"\{[^}]*\}", "*", glob.escape(callback.get("filename") or "{step}"))
        found = sorted(glob.glob(os.path.join(glob.escape(str(folder)), f"{names}.ckpt")))
        if found and not is_in(folder, run_dir):
            raise UserError(
                f"{found[0]} is another run's, and callback.{name}.dirpath={callback['dirpath']} would let this run "
                "replace or delete it; give another folder, or leave dirpath out"
            )


def check_validation(config: dict[str, Any], splits: Container[str]) -> None:
    """Refuse what needs validations in a run without any, and warn of checkpoints that it would not keep."""
    has_set, skips_all = "val" in splits, config["trainer"]["limit_val_batches"] == 0
    goal, is_plateau = str(config.get("optimized_metric")), config["scheduler"]["_target_"] == PLATEAU
    for option, needs in (("scheduler=plateau", is_plateau), (f"optimized_metric={goal}", goal.startswith("val/"))):
        if needs and not has_set:
            raise UserError(
                f"{option} needs validations, and no sentences are held out for one; use another choice, or "
                "data.val_sentences=1000"
            )
    if is_plateau and config["scheduler"].get("factor") == 1:
        raise UserError("scheduler.factor=1 never lowers the rate; give less, as 0.5, or use scheduler=constant")
    if is_plateau and skips_all:
        raise UserError(
            "scheduler=plateau reads the figures of validations, and trainer.limit_val_batches=0 leaves none; leave it "
            "as it is, or use another scheduler"
        )
    if skips_all or not has_set:
        warn_of_none_kept(config)


def warn_of_none_kept(config: dict[str, Any]) -> None:
    """Warn of callbacks that are to keep the checkpoints of validations in a run without any."""
    for name, callback in (config.get("callback") or {}).items():
        number, is_best = callback.get("save_top_k", 0), callback.get("filename") == Path(BEST).stem
        if number and not is_best and callback.get("save_on_train_epoch_end") is False and is_first():
            log.warning(
                f"callback.{name}.save_top_k={number} keeps checkpoints of validations, and this run has none; "
                f"callback.history.save_top_k={number} callback.history.save_on_train_epoch_end=true keeps those of "
                "the last epochs"
            )


def check_link_figure(config: dict[str, Any], links: Container[str]) -> None:
    """Refuse the loss of links as a figure of validations whose pairs have no links."""
    callbacks = (config.get("callback") or {}).values()
    read = [config["monitor"], config.get("optimized_metric"), *(callback.get("monitor") for callback in callbacks)]
    if "val" not in links and not OF_LINKS.keys().isdisjoint(read):
        raise UserError(
            f"{next(iter(OF_LINKS))} needs links of the validation pairs, and guided_alignment has none; choose "
            "another figure, such as monitor=val/loss"
        )


def check_end(trainer: Any, scheduler: Any) -> None:
    """Refuse a schedule over the whole run where nothing says how many updates that is.

    Args:
        scheduler: the partial of a schedule.
    """
    if "total_steps" in named_arguments(scheduler) and trainer.max_epochs == trainer.max_steps == -1:
        raise UserError(
            f"scheduler={scheduler.func.__name__} must know how long the run is; give trainer.max_epochs or "
            "trainer.max_steps, or use scheduler=inverse_sqrt"
        )


def check_interval(trainer: Any, datamodule: Any) -> None:
    """Refuse more batches between validations than an epoch has, where each epoch counts anew.

    Fewer than an update takes are warned of. A time is refused on several devices; it has an attribute of its own,
    private of Lightning 2.6.6.
    """
    if trainer._val_check_time_interval is not None and trainer.world_size > 1:
        raise UserError(
            f"trainer.val_check_interval is a time, which each of {trainer.world_size} devices reads from its own "
            "clock, so they would not begin a validation together; give a number of batches, or a share of an epoch as "
            "0.25"
        )
    interval = getattr(trainer, "val_check_interval", None)
    if interval is None or not trainer.limit_val_batches or "val" not in datamodule.corpus.splits:
        return
    datamodule.trainer = trainer
    batches, limit = len(datamodule.train_dataloader()), trainer.limit_train_batches
    batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    if isinstance(interval, int) and trainer.check_val_every_n_epoch is not None and interval > batches:
        raise UserError(
            f"trainer.val_check_interval={interval} is more than the {batches} batches of an epoch; give fewer, or add "
            "trainer.check_val_every_n_epoch=null, with which batches are counted through all epochs"
        )
    between = interval if isinstance(interval, int) else max(1, int(batches * interval))
    of_update = min(trainer.accumulate_grad_batches, batches)
    if between < of_update and is_first():
        log.warning(
            f"trainer.val_check_interval={interval} is {between} batch{'es' * (between > 1)}, and an update takes "
            f"{of_update}, so some weights are validated twice, which early stopping and scheduler=plateau take for no "
            f"improvement; give {of_update} batches or more"
        )


def check_shares(trainer: Any, datamodule: Any) -> None:
    """Refuse a share of batches that is none of them, which Lightning finds when it reads the split."""
    datamodule.trainer = trainer
    for split in ("train", "val", "test"):
        share = getattr(trainer, f"limit_{split}_batches")
        if not isinstance(share, float) or not 0 < share < 1:
            continue
        loader = getattr(datamodule, f"{split}_dataloader")()
        batches = min((len(one) for one in (loader if isinstance(loader, list) else [loader])), default=0)
        if batches > 0 and share * batches < 1:
            option = f"limit_{split}_batches" if split == "test" or not trainer.overfit_batches else "overfit_batches"
            raise UserError(
                f"trainer.{option}={share} of {batches} batches is less than one; give "
                f"{math.ceil(1000 / batches) / 1000} or more, or a "
                "whole number of batches"
            )


def check_positions(model: nn.Module) -> None:
    """Refuse a relative position that no attention is told of: ConvS2S attends to the source alone."""
    parts = [p.relative(num_heads=1, head_dim=2) for p in model.modules() if isinstance(p, PositionEncoding)]
    options = {part.option for part in parts if part is not None}
    layers = [part for part in model.modules() if isinstance(part, AttentionLayer)]
    if options and not any(layer.relative is not None for layer in layers):
        own = next((type(one) for one in layers if not type(one).__module__.startswith("seq2seq_attn.")), None)
        why = "this model has no self-attention" if own is None else f"{own.__name__}.relative is None"
        raise UserError(
            f"position={options.pop()} tells self-attention how far apart two positions are, and {why}; use "
            "position=sinusoidal, learned or none"
        )


def check_tied(config: dict[str, Any], tokenizer: SentencePieceTokenizer) -> None:
    """Refuse one matrix for two vocabularies, even of one size: unrelated tokens would share its rows."""
    if config["model"].get("tie_embeddings") == "all" and not tokenizer.is_of_one_model:
        raise UserError(
            "model.tie_embeddings=all needs one vocabulary for both languages, and here each has its own; use "
            "tokenizer.joint=true, or model.tie_embeddings=target"
        )


def check_lengths(max_length: int | None, longest: dict[str, tuple[int, int]], *, is_trained: bool = False) -> None:
    """Refuse sentences that are longer than the model's positions.

    Args:
        max_length: positions that the model has; None: any.
        longest: tokens of the longest source and target of each split, specials included.
        is_trained: the model can have no other positions.
    """
    needed = max(max(lengths) for lengths in longest.values())
    if max_length is not None and needed > max_length:
        split = next(name for name, lengths in longest.items() if max(lengths) == needed)
        more = (
            f"give the option max_length={needed} or more (attention.score.max_length, position.max_length), or drop "
            "long sentences with data.cleaning"
        )
        raise UserError(
            f"the model has positions for {max_length} tokens, and a sentence of {split} has {needed}; "
            f"{'shorten or remove such sentences' if is_trained else more}"
        )


def limits_of(search: Search) -> tuple[Any, str]:
    """Return the limits of a search, None if it has none of this kind, and the option that sets them."""
    if isinstance(search, MBRSearch):
        return getattr(search.candidates, "limits", None), "search.candidates.limits"
    return getattr(search, "limits", None), "search.limits"


def warn_of_limits(limits: Any, option: str, datamodule: Any, name: str = "val") -> None:
    """Warn if one reference of a set in a hundred is longer than a translation may be.

    Args:
        limits, option: see `limits_of`.
        datamodule: a `TranslationDataModule`.
        name: of the set.
    """
    if not isinstance(limits, Limits) or name not in datamodule.corpus.splits:
        return
    shards = list(datamodule.encoded(name))
    source, target = (torch.as_tensor(np.concatenate(side)) for side in zip(*shards, strict=True))
    source = source.double() + 1  # the end token
    longer = int((target > limits.most(source)).sum())
    if not is_first() or longer <= TOO_LONG * len(target):
        return
    most = partial(torch.quantile, q=1 - TOO_LONG / 2, interpolation="higher")  # half of the share for each limit
    relative, length = most((target - limits.max_extra_length) / source).item(), int(most(target.double()).item())
    options: dict[str, float] = {}
    if relative > limits.max_relative_length:
        options["max_relative_length"] = math.ceil(2 * relative) / 2
    if length > limits.max_length:
        options["max_length"] = length
    log.warning(
        f"{longer:,} of {len(target):,} references of {'the validation set' if name == 'val' else name} are longer "
        "than the limits of the search allow, so translations of that length are cut; set "
        f"{' '.join(f'{option}.{k}={v}' for k, v in options.items())}"
    )
