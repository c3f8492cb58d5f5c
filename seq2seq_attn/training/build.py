"""From a composed configuration to a run's data, model and trainer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import Checkpoint, ProgressBar

from seq2seq_attn.callback.autosave import Autosave
from seq2seq_attn.checkpoint.checkpoint_file import AtomicCheckpointIO
from seq2seq_attn.checkpoint.exact_resume import ExactResume
from seq2seq_attn.checkpoint.published import without_folders
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus, read
from seq2seq_attn.data.data_module import TranslationDataModule, evenly_spread
from seq2seq_attn.data.splitting import warn_of_decomposed, with_test_set
from seq2seq_attn.errors import UserError
from seq2seq_attn.logger.csv_logger import CsvLogger
from seq2seq_attn.logger.wandb_logger import WandbRun
from seq2seq_attn.metric.aer import AER
from seq2seq_attn.metric.language import with_language
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.nn.precision import NO_FLOAT64
from seq2seq_attn.objective.objective import Objective
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.check_config import is_one_sided
from seq2seq_attn.training.devices import fix_order_of_sums, without_requeue
from seq2seq_attn.training.guided_alignment import GuidedAlignment
from seq2seq_attn.training.monitor import validation_figures
from seq2seq_attn.training.scheduled_sampling import ScheduledSampling
from seq2seq_attn.training.translation_module import TranslationModule

REFERENCES = 500  # of each split, from which the language of the metrics is told
SWITCHES = {"enable_progress_bar": (ProgressBar,), "enable_checkpointing": (Checkpoint, Autosave)}

log = logging.getLogger(__name__)


def build(
    composed: DictConfig, kept_tokenizer: dict[str, Any] | None = None
) -> tuple[TranslationModule, TranslationDataModule]:
    """Read the data, train the tokenizer, and build the model with what trains and scores it.

    The sizes that only the tokenizer knows are filled in; `module.config` is the resolved configuration, as plain data.

    Args:
        kept_tokenizer: state of a tokenizer that is used instead of training one.
    """
    reader: Corpus = instantiate(composed.data, _convert_="all")
    objective: Objective | None = instantiate(composed.get("objective"), _convert_="all")
    corpus = load_corpus(reader, one_sided=is_one_sided(composed))
    tokenizer = build_tokenizer(composed.tokenizer, corpus, objective, kept_tokenizer)
    config = resolved_config(composed, tokenizer)
    metrics = build_metrics(config, sample_references(corpus))
    if metrics:
        warn_of_decomposed(corpus, (name for name in corpus.splits if name != "train"))
    guided: GuidedAlignment = instantiate(config["guided_alignment"])
    scheduled: ScheduledSampling = instantiate(config["scheduled_sampling"])
    datamodule = TranslationDataModule(
        corpus,
        tokenizer,
        batch_tokens=config["batch_tokens"],
        batch_sentences=config["batch_sentences"],
        eval_batch_tokens=config["eval_batch_tokens"],
        num_workers=config["num_workers"],
        seed=config["seed"],
        cache_dir=config["paths"]["cache_dir"],
        val_sentences=config["val_sentences"],
        objective=objective,
    )
    module = TranslationModule(
        model=instantiate(config["model"], _convert_="all"),
        tokenizer=tokenizer,
        search=instantiate(config["search"], _convert_="all"),
        metrics=metrics,
        test_names=datamodule.test_names,
        optimizer=instantiate(config["optimizer"], _convert_="all"),
        scheduler=instantiate(config["scheduler"], _convert_="all"),
        label_smoothing=config["label_smoothing"],
        config=config,
        r_drop_alpha=config["r_drop_alpha"],
        token_dropout=config["token_dropout"],
        guided_alignment=guided,
        translates=not corpus.is_one_sided,
        scheduled_sampling=scheduled,
    )
    datamodule.max_length = module.model.max_length
    for metric in metrics.values():
        metric.check(module.model, config)
        metric.check_lengths(module.model, tokenizer, config)
    if guided.is_on:
        guided.check(module.model)  # before the links are made
        tokenizer.check_words()
        datamodule.links = guided.prepare(reader, corpus, config["paths"]["cache_dir"], config["trust"])
    return module, datamodule


def load_corpus(reader: Corpus, *, one_sided: bool) -> LoadedCorpus:
    """Read the corpus of a training; `one_sided`: its targets alone.

    Raises:
        UserError: if it has no training split, or no pairs where pairs are needed.
    """
    corpus = with_test_set(read(reader))
    if one_sided:
        corpus = corpus.one_sided()
    elif reader.has_one_side:
        raise UserError("data=text has no translations to learn; use model=lm, or objective=denoising to pre-train")
    if "train" not in corpus.splits:
        raise UserError("there is nothing to train on; set data.train=FILE, or data.train=[SOURCE,TARGET]")
    return corpus


def build_tokenizer(
    options: DictConfig, corpus: LoadedCorpus, objective: Objective | None, kept_state: dict[str, Any] | None
) -> SentencePieceTokenizer:
    """Train a tokenizer on the training split, or restore the one of this state with the run's own sampling."""
    if kept_state is not None:
        kept = SentencePieceTokenizer.from_state(kept_state | {"sampling_alpha": options.sampling_alpha})
        kept.check_sampling()
        return kept
    marks = {} if objective is None else {"num_sentinels": objective.num_sentinels}
    tokenizer: SentencePieceTokenizer = instantiate(options, _convert_="all", **marks)
    train = corpus.splits["train"]
    tokenizer.train([] if corpus.is_one_sided else train.sources, train.targets)
    return tokenizer


def resolved_config(composed: DictConfig, tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Fill in the sizes that only the tokenizer knows, and return the resolved configuration as plain data."""
    composed.tokenizer.vocab_size = tokenizer.vocab_size
    composed.model.source_vocab_size = tokenizer.source_vocab_size
    composed.model.target_vocab_size = tokenizer.target_vocab_size
    config: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment]
    config.pop("hydra", None)
    config.setdefault("metric", {})  # of which Hydra keeps nothing for metric=[]
    return config


def build_metrics(config: dict[str, Any], references: Sequence[str]) -> dict[str, Any]:
    """Return the text metrics by name; options of value `auto` follow the language, see `metric_language`.

    Args:
        references: some of each set that is scored.

    Raises:
        UserError: for another class, which nothing would update.
    """
    chosen = {name: with_language(options, references) for name, options in config["metric"].items()}
    warn_of_language(config["metric"], chosen)
    metrics = {name: instantiate(options, _convert_="all") for name, options in chosen.items()}
    for name, metric in metrics.items():
        if not isinstance(metric, TextMetric | AER):
            raise UserError(
                f"metric={name} is a {type(metric).__name__}, which does not read translations; derive it from "
                "TextMetric or CorpusMetric"
            )
    return metrics


def warn_of_language(given: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Warn of a target language by whose words the references would be cut at blanks that they lack.

    Args:
        given, chosen: the options of the metrics by name.
    """
    other = [name for name in given if chosen[name] != given[name]]
    if other:
        name, code = other[0], chosen[other[0]]["language"]
        option = next(option for option, value in given[name].items() if value == "auto")
        log.warning(
            f"The references are mostly in a script without spaces, and the target language is called "
            f"{given[name]['language']}: {', '.join(other)} count words as for {code}; name the language in the "
            f"training, data.target_language={code}, or set metric.{name}.{option}"
        )


def sample_references(corpus: LoadedCorpus) -> list[str]:
    """Return first references of the validation and test sets, evenly spread over each."""
    return [
        split.references[row][0]
        for name, split in corpus.splits.items()
        if name != "train"
        for row in evenly_spread(REFERENCES, len(split)).tolist()
    ]


def start_loggers(trainer: Any, config: dict[str, Any], *, continues: bool = False) -> None:
    """Add the chosen loggers, and give them the options, which starts their runs; folders of this machine stay out.

    Args:
        continues: the run resumes from the latest checkpoint of its own folder, so its loggers continue theirs.
    """
    own = {"resume": "auto"} if continues else {}
    options = [logger | (own if "resume" in logger else {}) for logger in config.get("logger", {}).values()]
    trainer.loggers = [*trainer.loggers, *(instantiate(logger, _convert_="all") for logger in options)]
    shared = without_folders(config)
    for logger in trainer.loggers:
        if isinstance(logger, WandbRun):
            logger.summarize(validation_figures(OmegaConf.create(config)))
        if not isinstance(logger, CsvLogger):
            logger.log_hyperparams(shared)


def build_trainer(config: dict[str, Any], run_dir: Path) -> pl.Trainer:
    """Return Lightning's Trainer with the chosen callbacks, except those that its own options disable.

    Its only logger is that of metrics.csv: others, which `start_loggers` adds, write files as soon as they are made.
    """
    off = tuple(kind for option, kinds in SWITCHES.items() if not config["trainer"][option] for kind in kinds)
    callbacks = [instantiate(callback, _convert_="all") for callback in config.get("callback", {}).values()]
    callbacks = [callback for callback in callbacks if not isinstance(callback, off)]
    accelerator = without_mps(config["trainer"]["accelerator"])
    try:
        plugins = [instantiate(plugin, _convert_="all") for plugin in config["trainer"]["plugins"] or []]
        trainer: pl.Trainer = instantiate(
            config["trainer"] | {"accelerator": accelerator},
            callbacks=[ExactResume(), *callbacks],
            logger=CsvLogger(run_dir),
            plugins=[*without_requeue(plugins), AtomicCheckpointIO(run_dir / "checkpoints")],
            default_root_dir=str(run_dir),
            _convert_="all",
        )
    except Exception as error:
        cause = str(error.__cause__ or error).rstrip(".!")
        way_out = "trainer=cpu needs no GPU" if "gpu" in cause.lower() else "choose other options of trainer"
        raise UserError(f"Lightning's Trainer refuses its options: {cause}; {way_out}") from error
    if config["trainer"]["deterministic"]:
        fix_order_of_sums(trainer)
    return trainer


def without_mps(accelerator: Any) -> Any:
    """Return the CPU where `auto` would choose the GPU of a Mac.

    Raises:
        UserError: if that GPU is asked for.
    """
    is_mac = torch.backends.mps.is_available()
    if accelerator == "mps" or (accelerator == "gpu" and is_mac):
        raise UserError(f"trainer.accelerator={accelerator} is the GPU of a Mac, which {NO_FLOAT64}; use trainer=cpu")
    if accelerator != "auto" or not is_mac:
        return accelerator
    log.info(f"The GPU of this machine (mps) {NO_FLOAT64}; the CPU is used")
    return "cpu"
