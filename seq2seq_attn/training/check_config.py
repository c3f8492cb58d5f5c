"""Checks before a run reads anything: options that do not fit one another, and options that nothing reads."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from torch import nn

from seq2seq_attn.data.cleaning import text_options
from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.run_lock import LAST
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import FIRST, TRAIN, check_options, class_named, key_of, typed
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.training.devices import check_strategy
from seq2seq_attn.training.monitor import choose_monitor
from seq2seq_attn.training.parent_config import CHOICE, name_attention
from seq2seq_attn.training.scores import MEANS

log = logging.getLogger(__name__)
SLOTS = {
    "self_attention": "a Transformer's encoder or decoder",
    "encoder_attention": "a Transformer's encoder",
    "cross_attention": "a Transformer's decoder",
    "position": "a Transformer or ConvS2S",
    "feed_forward": "a Transformer",
}
BLEU, TOKENIZED_BLEU = "seq2seq_attn.metric.bleu.BLEU", "seq2seq_attn.metric.tokenized_bleu.TokenizedBLEU"
EXACT_MATCH = "seq2seq_attn.metric.exact_match.ExactMatch"
OWN_RATES = ("sgd", "adafactor")  # optimizers with learning rates of another size than Adam's
REFUSED_CALLBACKS = {  # of Lightning, with the reason and the way out
    StochasticWeightAveraging: "whose average no validation scores and no checkpoint keeps; use callback=[default,ema]",
    GradientAccumulationScheduler: (
        "and the length of a run, its schedule and its resumption are computed with one number of batches for each "
        "update; give trainer.accumulate_grad_batches=NUMBER"
    ),
}
SAVE_LAST = ("seq2seq_attn.callback.autosave.Autosave", "seq2seq_attn.callback.stop_on_signal.StopOnSignal")
TAKEN = (*MEANS, "bits_per_character", "ppl", "attention_entropy", "alignment_loss")  # as names of metrics
TOKENIZER = "seq2seq_attn.tokenizer.sentencepiece.SentencePieceTokenizer"
PARTS = ("data", "tokenizer", "model", "search", "optimizer", "scheduler", "trainer")  # of every training


def check_training(composed: DictConfig) -> None:
    """Check all options of a training before anything is read; fill in `monitor`, its mode and `choices.attention`.

    Raises:
        UserError: for the first option that is wrong.
    """
    check_groups(composed)
    check_options(composed, FIRST)
    choose_monitor(composed)
    name_attention(composed)
    check_options(composed, TRAIN)
    check_config(composed)


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
        problems = {
            "is the name of a figure that every run has": name in TAKEN,
            "has a dot in its name": "." in str(name),
            "is a name that torch uses itself": hasattr(nn.ModuleDict, str(name)),
        }
        for problem, is_there in problems.items():
            if is_there:
                raise UserError(f"metric.{name} {problem}; give the metric another in its YAML file")
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
    check_last(composed)
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


def check_last(composed: DictConfig) -> None:
    """Refuse another folder for last.ckpt, which a resumed run would not find there."""
    for name, callback in (composed.get("callback") or {}).items():
        given: Any = OmegaConf.to_container(callback, resolve=False)
        if given.get("_target_") not in SAVE_LAST or given.get("folder") in (None, "${paths.run_dir}/checkpoints"):
            continue
        usual = Path(composed.paths.run_dir) / "checkpoints"
        if Path(callback.folder) != usual:
            raise UserError(
                f"callback.{name}.folder={callback.folder} would hide {LAST} from resume=auto, which looks for it in "
                f"{usual}; leave folder as it is"
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
    """Refuse a BLEU that would tokenize a second time, and warn of metrics that compare cleaned text with references.

    The marks of a tokenizer would fall apart into tokens that match too easily. References keep their case and their
    blanks.

    Args:
        data, metrics: their options, metrics by name.
    """
    if text_options(data)["lowercase"] and is_first():
        warn_of_case(metrics)
    if text_options(data)["split_punctuation"] and is_first():
        warn_of_marks(metrics)
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


def warn_of_marks(metrics: Any) -> None:
    """Warn of metrics that tell a mark after a blank, as translations have it, from one without, as references do.

    Args:
        metrics: their options by name.
    """
    ways_out = [
        f"metric.{name}.normalized=true" if "normalized" in options else f"metrics without {name}"
        for name, options in metrics.items()
        if options.get("normalized") in (False, "auto") or options["_target_"] == EXACT_MATCH
    ]
    if ways_out:
        log.warning(
            "data.cleaning.split_punctuation=true puts a blank before each mark of a translation, and references stay "
            f"as they are, which makes scores worse; give {' and '.join(ways_out)}"
        )
