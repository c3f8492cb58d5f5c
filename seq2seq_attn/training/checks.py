"""What a run refuses before it trains: options that do not fit one another, the data, the model or the checkpoint."""

from __future__ import annotations

import logging
import math
from collections.abc import Container
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from torch import Tensor, nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.checkpoint.average import shapes
from seq2seq_attn.checkpoint.checkpoint_file import is_checkpoint_of
from seq2seq_attn.checkpoint.resume import CHOOSING, FIXED, LIMITS, OF_MODEL, Change, Resumed
from seq2seq_attn.data.cleaning import text_options
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.run_lock import BEST
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.options import class_named, key_of, typed
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.training.devices import check_strategy
from seq2seq_attn.training.monitor import OF_LINKS, PLATEAU
from seq2seq_attn.training.parent_config import CHOICE
from seq2seq_attn.training.translation_module import TranslationModule

log = logging.getLogger(__name__)
SLOTS = {
    "self_attention": "a Transformer's encoder or decoder",
    "encoder_attention": "a Transformer's encoder",
    "cross_attention": "a Transformer's decoder",
    "position": "a Transformer or ConvS2S",
    "feed_forward": "a Transformer",
}
BLEU, TOKENIZED_BLEU = "seq2seq_attn.metric.bleu.BLEU", "seq2seq_attn.metric.tokenized_bleu.TokenizedBLEU"
OF_SHAPES = ("data", "tokenizer", *OF_MODEL)
TRAINING = {"loops", "callbacks", "optimizer_states", "lr_schedulers", "global_step", "resume"}
OWN_RATES = ("sgd", "adafactor")  # optimizers with learning rates of another size than Adam's
NAMED = 4  # differences, at most
TOO_LONG = 0.01  # share of the references that the limits of the search may cut
REFUSED_CALLBACKS = {  # of Lightning, with the reason and the way out
    StochasticWeightAveraging: "whose average no validation scores and no checkpoint keeps; use callback=[default,ema]",
    GradientAccumulationScheduler: (
        "and the length of a run, its schedule and its resumption are computed with one number of batches for each "
        "update; give trainer.accumulate_grad_batches=NUMBER"
    ),
}
TOKENIZER = "seq2seq_attn.tokenizer.sentencepiece.SentencePieceTokenizer"
PARTS = ("data", "tokenizer", "model", "search", "optimizer", "scheduler", "trainer")  # of every training


def check_groups(composed: DictConfig) -> None:
    """Refuse a training without one of its parts, a callback or metric that is no group, and another tokenizer.

    Raises:
        UserError: for these.
    """
    for name in PARTS:
        if not OmegaConf.is_config(composed.get(name)):
            raise UserError(f"a training needs {name}=NAME; `seq2seq-attn --help {name}` lists the choices")
    for name, callback in (composed.get("callback") or {}).items():
        if not OmegaConf.is_config(callback):
            raise UserError(f"callback.{name}={typed(callback)} is no group of options; ~callback.{name} leaves it out")
    for name, metric in (composed.get("metric") or {}).items():
        if not OmegaConf.is_config(metric):
            raise UserError(
                f"metric.{name}={typed(metric)} is no group of options; the YAML file of a metric has them under a key "
                "of its name"
            )
    if composed.tokenizer.get("_target_") != TOKENIZER:
        raise UserError(
            f"tokenizer._target_={composed.tokenizer.get('_target_')} is not {TOKENIZER}, the only class from which "
            "data is encoded and a checkpoint rebuilt; give a model of SentencePiece of yours by tokenizer.model=FILE"
        )


def check_config(composed: DictConfig) -> None:
    """Refuse options that do not fit one another, before anything is read."""
    if HydraConfig.initialized():
        check_recipe(HydraConfig.get().runtime)
        overrides = list(HydraConfig.get().overrides.task)
        check_slots(OmegaConf.to_yaml(composed.model, resolve=False), overrides)
        check_rate(composed, overrides, HydraConfig.get().runtime.choices)
    check_strategy(composed.trainer.strategy)
    check_metrics(composed.data, composed.get("metric") or {})
    check_loggers(composed.get("logger") or {})
    check_callbacks(composed.get("callback") or {}, composed.trainer)
    check_best(composed)
    if is_one_sided(composed):
        check_one_sided(composed)
    check_unread(composed)
    if composed.init_from.tokenizer not in ("keep", "new"):
        raise UserError(f"init_from.tokenizer={composed.init_from.tokenizer} must be keep or new")
    if composed.init_from.run is not None and HydraConfig.initialized():
        check_parent(composed.init_from.run, HydraConfig.get().runtime)
    if composed.init_from.run is not None and composed.ckpt_path is not None:
        raise UserError(
            "init_from.run starts a new run from the weights of another, and ckpt_path continues that run with its "
            "optimizer; give one of them"
        )


def check_unread(composed: DictConfig) -> None:
    """Refuse options that nothing reads, since another that they need is not given."""
    guided = composed.guided_alignment
    usual = OmegaConf.load(conf_directory() / "train.yaml").guided_alignment
    changed = next((name for name in usual if name not in ("links", "runs") and guided[name] != usual[name]), None)
    unread = {
        "token_dropout.source": (
            composed.token_dropout.source > 0 and composed.model.get("encoder") is None,
            "a language model reads no source",
        ),
        "init_from.tokenizer": (
            composed.init_from.run is None and composed.init_from.tokenizer == "new",
            "a run without init_from.run has a new tokenizer",
        ),
        "init_from.strict": (
            composed.init_from.run is None and not composed.init_from.strict,
            "without init_from.run there are no weights to fit",
        ),
        "guided_alignment.runs": (
            guided.get("runs") is not None and guided.links != "self",
            "the runs link words for guided_alignment.links=self alone",
        ),
        f"guided_alignment.{changed}": (
            guided.links is None and guided.weight > 0 and changed is not None,
            "there is no guidance without guided_alignment.links",
        ),
        "guided_alignment.symmetrization": (
            guided.links not in (None, "eflomal", "self") and guided.symmetrization != usual.symmetrization,
            "a file has links of one kind, not of two directions",
        ),
    }
    for option, (is_unread, reason) in unread.items():
        if is_unread:
            raise UserError(f"{option} would change nothing, because {reason}; leave it out")


def check_rate(composed: DictConfig, overrides: list[str], choices: Any) -> None:
    """Refuse an optimizer whose learning rates are of another size than Adam's with the rate of a recipe for Adam.

    Args:
        overrides: those of the command line.
        choices: of groups, by name.
    """
    given = {key_of(override) for override in overrides}
    name = choices.get("optimizer")
    if name in OWN_RATES and "optimizer" in given and "optimizer.lr" not in given:
        usual = OmegaConf.load(conf_directory() / f"optimizer/{name}.yaml").lr
        if composed.optimizer.lr != usual:
            raise UserError(
                f"optimizer={name} would train at Adam's learning rate, {composed.optimizer.lr:g}, which the recipe "
                f"or experiment sets; give optimizer.lr={usual:g}, or another rate"
            )


def check_parent(run: str, runtime: Any) -> None:
    """Refuse a parent that a file of options names: its parts are choices before Hydra reads such a file."""
    if runtime.choices.get(CHOICE) is None:
        raise UserError(
            f"init_from.run={run} is in a file of options, such as an experiment, from which the model of that run is "
            "not composed; leave it out there, and give it on the command line"
        )


def check_best(composed: DictConfig) -> None:
    """Refuse options with which best.ckpt, from which the test is run, would not be the best or not be there."""
    checkpoint = (composed.get("callback") or {}).get("checkpoint")
    if checkpoint is None or checkpoint.get("_target_") != "pytorch_lightning.callbacks.ModelCheckpoint":
        return
    if not composed.trainer.enable_checkpointing:
        return
    if checkpoint.get("save_top_k", 1) not in (0, 1):
        raise UserError(
            f"callback.checkpoint.save_top_k={checkpoint.save_top_k} would write several checkpoints as best.ckpt; to "
            "keep the five best beside it, give callback.best_checkpoints.save_top_k=5"
        )
    given: Any = OmegaConf.to_container(checkpoint, resolve=False)
    for option in ("every_n_train_steps", "train_time_interval"):
        if given.get(option):
            raise UserError(
                f"callback.checkpoint.{option}={given[option]} would write other weights than the best to best.ckpt; "
                "leave it out, since trainer.val_check_interval sets when weights are compared"
            )
    is_usual = {
        "filename": given.get("filename") == "best",
        "dirpath": given.get("dirpath") == "${paths.run_dir}/checkpoints"
        or Path(checkpoint.get("dirpath") or "") == Path(composed.paths.run_dir) / "checkpoints",
    }
    for option, usual in is_usual.items():
        if not usual:
            raise UserError(
                f"callback.checkpoint.{option}={checkpoint.get(option)} would hide the best checkpoint from its own "
                f"test; leave {option} as it is, or add a ModelCheckpoint of another figure under another name"
            )


def check_callbacks(callbacks: Any, trainer: Any) -> None:
    """Warn of a choice that leaves out what every run needs, and refuse two profilers and `REFUSED_CALLBACKS`.

    Args:
        callbacks, trainer: their options, callbacks by name.
    """
    for name, options in callbacks.items():
        kind = class_named(str(options.get("_target_")))
        for refused, why in REFUSED_CALLBACKS.items():
            if kind is not None and issubclass(kind, refused):
                raise UserError(f"callback.{name} is Lightning's {refused.__name__}, {why}")
    if callbacks and not {"seeding", "checkpoint", "autosave", "stop_on_signal"} & set(callbacks) and is_first():
        names = ",".join(callbacks)
        log.warning(
            f"callback=[{names}] leaves out the default callbacks, among them those that save, resume exactly, choose "
            f"the best checkpoint and print validations; callback=[default,{names}] adds to them"
        )
    if "profile" in callbacks and trainer.get("profiler") is not None:
        raise UserError("callback=profile and trainer.profiler measure the same steps; leave out one of the two")


def check_loggers(loggers: Any) -> None:
    """Refuse a logger of this package, such as `wandb_logger`, whose package `wandb` is an extra that is not there."""
    for logger in loggers.values():
        module = str(logger.get("_target_")).rpartition(".")[0]
        if not module.startswith("seq2seq_attn.logger."):
            continue
        package = module.rpartition(".")[2].removesuffix("_logger")
        spec = find_spec(package)
        if spec is None or spec.origin is None:  # a folder of this name, such as W&B makes, has no origin
            raise UserError(
                f"logger={package} needs the package {package}, which is not installed; pip install "
                f"'seq2seq_attn[{package}]', or leave it out, as every run writes metrics.csv"
            )


def is_one_sided(config: Any) -> bool:
    """Return whether the targets alone are read: there is no encoder, or its sources are made of them."""
    return config["model"].get("encoder") is None or config.get("objective") is not None


def check_one_sided(composed: DictConfig) -> None:
    """Refuse what compares translations or links two sides, and noise for a model without a source."""
    if composed.get("objective") is not None and composed.model.get("encoder") is None:
        raise UserError(
            "objective= makes the sources that an encoder reads, and model=lm has none; leave one of them out"
        )
    if names := list(composed.get("metric") or {}):
        raise UserError(
            f"metric.{names[0]} compares translations with references, and there are none in a training on one-sided "
            f"text, which is measured by its loss; leave it out with metric=[]"
        )
    if composed.guided_alignment.links is not None:
        raise UserError("guided_alignment.links needs two sides, and here the text has one; leave it out")


def check_run(module: TranslationModule, datamodule: TranslationDataModule, resumed: Resumed | None) -> None:
    """Refuse what the model cannot read, or cannot resume from, before anything is written."""
    if resumed is not None:
        check_same_model(resumed, module)
        check_changes(resumed, Path(module.config["paths"]["run_dir"]))
        check_keeper(resumed, module.config)
    check_validation(module.config, datamodule.corpus.splits)
    check_link_figure(module.config, datamodule.links)
    check_positions(module.model)
    check_lengths(module.model.max_length, datamodule.longest)
    if resumed is None and not is_one_sided(module.config):
        warn_of_limits(getattr(module.search, "limits", None), datamodule)


def check_recipe(runtime: Any) -> None:
    """Refuse a recipe that does not exist, and name a corpus and a model that have none: Hydra leaves both out."""
    name, pair = runtime.choices.get("recipe"), f"{runtime.choices.get('data')}_{runtime.choices.get('model')}"
    folders = [Path(source.path) / "recipe" for source in runtime.config_sources if source.schema == "file"]
    names = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    if name not in (None, pair, *names):
        raise UserError(f"There is no recipe '{name}'; choose from: {', '.join(names)}")
    if name == pair and name not in names and is_first():
        log.info(f"No recipe conf/recipe/{name}.yaml: sizes and schedule are the defaults, unless set")


def check_slots(model: str, overrides: list[str]) -> None:
    """Refuse an override of a slot that no part of the model reads.

    Args:
        model: its configuration as YAML, references unresolved.
        overrides: those of the command line.
    """
    for override in overrides:
        slot = slot_of(override)
        if slot in SLOTS and f"${{{slot}" not in model and f":{slot}," not in model:
            raise UserError(
                f"{override} would change nothing: this model has no {slot.replace('_', '-')}, which "
                f"{SLOTS[slot]} has; leave it out, or use model=transformer"
            )


def slot_of(override: str) -> str:
    """Return the slot: `self_attention` of `attention@self_attention=sparse` or `self_attention.dropout=0.1`."""
    return key_of(override).rpartition("@")[2].partition(".")[0].partition("/")[0]


def check_metrics(data: Any, metrics: Any) -> None:
    """Refuse a BLEU that would tokenize a second time, and warn of metrics that compare lower-cased text with case.

    The marks of a tokenizer would fall apart into tokens that match too easily.

    Args:
        data, metrics: their options, metrics by name.
    """
    if text_options(data)["lowercase"] and is_first():
        warn_of_case(metrics)
    suffix = data.get("suffix") or ""
    if "tok" not in suffix.split("."):
        return
    for name, options in metrics.items():
        splits = options["_target_"] == BLEU and options["tokenize"] != "none"
        if splits or options["_target_"] == TOKENIZED_BLEU:
            raise UserError(
                f"data.suffix={suffix} is tokenized text, and metric.{name} would tokenize it once more; use "
                "data=multi30k_tok, or metric=[tokenized_text]"
            )


def warn_of_case(metrics: Any) -> None:
    """Warn of metrics that tell the case of references from translations in small letters.

    Args:
        metrics: their options by name.
    """
    ways_out = [
        f"metric.{name}.{option}={typed(not cased)}"
        for name, options in metrics.items()
        for option, cased in (("lowercase", False), ("case_sensitive", True))
        if options.get(option) is cased
    ]
    if ways_out:
        log.warning(
            "data.cleaning.lowercase=true makes the translations lower case, and references keep their case, which "
            f"lowers scores unless they have no capitals; give {' '.join(ways_out)}"
        )


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
    """Refuse changed options that cannot take effect in a resumed run, and limits that it has passed."""
    file, checkpoint, changed = resumed
    other_best = sorted((c for c in changed if c.key in CHOOSING), key=lambda change: CHOOSING.index(change.key))
    if other_best and is_checkpoint_of(file, run_dir):
        key, old, new = other_best[0]
        raise UserError(
            f"{key}={new} would replace {run_dir}/checkpoints/{BEST}, which was chosen "
            + (f"without it; leave {key} out" if old is None else f"with {key}={old}; give {key}={old}")
            + ", or start a new run"
        )
    for change in changed:
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


def check_validation(config: dict[str, Any], splits: Container[str]) -> None:
    """Refuse what needs the figures of validations where no sentences are held out for one."""
    goal = str(config.get("optimized_metric"))
    for option, needs in (
        ("scheduler=plateau", config["scheduler"]["_target_"] == PLATEAU),
        (f"optimized_metric={goal}", goal.startswith("val/")),
    ):
        if needs and "val" not in splits:
            raise UserError(
                f"{option} needs validations, and no sentences are held out for one; use another choice, or "
                "data.val_sentences=1000"
            )
    if config["scheduler"]["_target_"] == PLATEAU and config["scheduler"].get("factor") == 1:
        raise UserError("scheduler.factor=1 never lowers the rate; give less, as 0.5, or use scheduler=constant")
    if config["scheduler"]["_target_"] == PLATEAU and config["trainer"]["limit_val_batches"] == 0:
        raise UserError(
            "scheduler=plateau reads the figures of validations, and trainer.limit_val_batches=0 leaves none; leave it "
            "as it is, or use another scheduler"
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
    """Refuse more batches between validations than an epoch has, where each epoch counts anew, and a time on devices.

    A time has an attribute of its own, private of Lightning 2.6.6.
    """
    if trainer._val_check_time_interval is not None and trainer.world_size > 1:
        raise UserError(
            f"trainer.val_check_interval is a time, which each of {trainer.world_size} devices reads from its own "
            "clock, so they would not begin a validation together; give a number of batches, or a share of an epoch as "
            "0.25"
        )
    interval = getattr(trainer, "val_check_interval", None)
    if not isinstance(interval, int) or trainer.check_val_every_n_epoch is None or not trainer.limit_val_batches:
        return
    datamodule.trainer = trainer
    batches, limit = len(datamodule.train_dataloader()), trainer.limit_train_batches
    batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    if "val" in datamodule.corpus.splits and interval > batches:
        raise UserError(
            f"trainer.val_check_interval={interval} is more than the {batches} batches of an epoch; give fewer, or add "
            "trainer.check_val_every_n_epoch=null, with which batches are counted through all epochs"
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


def check_lengths(max_length: int | None, longest: dict[str, tuple[int, int]]) -> None:
    """Refuse sentences that are longer than the model's positions.

    Args:
        max_length: positions that the model has; None: any.
        longest: tokens of the longest source and target of each split, specials included.
    """
    needed = max(max(lengths) for lengths in longest.values())
    if max_length is not None and needed > max_length:
        split = next(name for name, lengths in longest.items() if max(lengths) == needed)
        raise UserError(
            f"the model has positions for {max_length} tokens, and a sentence of {split} has {needed}; give the option "
            f"max_length={needed} or more (attention.score.max_length, position.max_length), or drop long sentences "
            "with data.cleaning"
        )


def warn_of_limits(limits: Any, datamodule: Any) -> None:
    """Warn if one reference of the validation set in a hundred is longer than a translation may be.

    Args:
        limits: of the search; None: it has none of this kind.
        datamodule: a `TranslationDataModule`.
    """
    if not isinstance(limits, Limits) or "val" not in datamodule.corpus.splits:
        return
    shards = list(datamodule.encoded("val"))
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
        f"{longer:,} of {len(target):,} references of the validation set are longer than the limits of the search "
        "allow, so translations of that length are cut; set "
        f"{' '.join(f'search.limits.{k}={v}' for k, v in options.items())}"
    )
