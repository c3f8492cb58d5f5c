"""The command `evaluate.py`: load a model or an ensemble, test it by the steps that end a training run, and report."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from pytorch_lightning.callbacks import RichProgressBar

from seq2seq_attn.checkpoint.admitted import NOT_TAKEN, Trust, build, check_tokenizer, targets
from seq2seq_attn.checkpoint.load import Loaded, check_saved_options
from seq2seq_attn.data.cleaning import OF_TEXT, cleaning_options
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus, read
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.data.splitting import HELD_OUT, warn_of_decomposed, with_test_set
from seq2seq_attn.distributed.run_lock import check_holds_no_run, only_process_in
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.evaluation.earlier import EVALUATION, check_unrecorded, earlier_translations
from seq2seq_attn.evaluation.pair_log_prob import score
from seq2seq_attn.evaluation.report import build_report, print_report, write_report
from seq2seq_attn.inference.models import Models, load_models
from seq2seq_attn.inference.precision import precision_plugin
from seq2seq_attn.metric.attention import AttentionFigures
from seq2seq_attn.metric.confidence import check_bootstrap
from seq2seq_attn.options import EVALUATE, TRAIN, check, check_options, given_overrides, key_of, typed
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.process import quieten
from seq2seq_attn.search.search import Search
from seq2seq_attn.text import printable
from seq2seq_attn.training.build import build_metrics, sample_references
from seq2seq_attn.training.check_config import check_metrics
from seq2seq_attn.training.check_run import check_lengths, limits_of, warn_of_limits
from seq2seq_attn.training.parent_config import CLEANINGS
from seq2seq_attn.training.results import translation_files, write_translations
from seq2seq_attn.training.translation_module import TranslationModule

RUN_OPTIONS = {  # that an evaluation takes from the run, and their types
    "metric": dict, "choices": dict, "trainer.precision": (str, int), "seed": int, "batch_tokens": int,
    "label_smoothing": (int, float), "eval_batch_tokens": (int, type(None)),
}  # fmt: skip
DEFAULT_METRICS = ("bleu", "chrf", "ter")  # of evaluate.yaml
CLEANING = re.compile(r"data[./](?:corpus[./])*cleaning(?:\.(\w+))?")  # an option of it, or the whole

log = logging.getLogger(__name__)


def evaluate(config: DictConfig) -> dict[str, Any]:
    """Translate, score, write the files and print the figures; return what `evaluation.json` holds.

    With `score=FILE` nothing is translated: see `pair_log_prob.score`.
    """
    check_options(config, EVALUATE)
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError(f"{command('evaluate')} needs ckpt_path=RUN, a run folder or a .ckpt file")
    quieten()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    paths = [config.ckpt_path] if isinstance(config.ckpt_path, str) else list(config.ckpt_path)
    trust = config.get("trust") or ()
    trust = trust if isinstance(trust, str) else list(trust)
    models = load_models(paths, config.device, trust)
    scores_pairs = config.get("score") is not None
    of_run = RUN_OPTIONS if config.get("search") is not None else RUN_OPTIONS | {"search": dict}
    if scores_pairs:
        check_unread(config)
        given = {"trainer.precision": config.precision, "batch_tokens": config.batch_tokens}
        of_run = {name: RUN_OPTIONS[name] for name, value in given.items() if not value}
    check_saved_options(models.config, of_run, models.files[0])
    check_values(models.config, of_run, models.files[0])
    precision = config.precision or models.config["trainer"]["precision"]
    precision_plugin(precision, models.device)  # which refuses what it cannot be
    run_dir = Path(config.paths.run_dir)
    with only_process_in(run_dir):
        check_holds_no_run(run_dir, "paths.run_dir")
        if not scores_pairs:
            return evaluate_splits(config, models, run_dir, trust)
        trainer = build_trainer(models.device, precision)
        return score(config, models, trainer.precision_plugin)


def evaluate_splits(config: DictConfig, models: Models, run_dir: Path, trust: Trust) -> dict[str, Any]:
    """Test the models, replace the results of an earlier evaluation of them in the folder, and return the report."""
    check_objectives(models)
    check_bootstrap(config.bootstrap)
    earlier = earlier_translations(run_dir, models.files)
    uses_run_data = "data" not in config
    chosen = choose(config, models.config)
    if not models.model.reads_source:
        check_without_translations(config)
        chosen["metric"] = {}
    if uses_run_data:
        reader: Corpus = build(chosen["data"], "data", models.files[0], trust)
    else:
        reader = instantiate(chosen["data"], _convert_="all")
    check_metrics(chosen["data"], chosen["metric"])
    check_downloads(chosen["metric"], config.metric, models.files[0])
    pl.seed_everything(models.config["seed"], workers=True, verbose=False)
    corpus = with_test_set(read(reader))
    check_languages(corpus, models)
    splits = choose_splits(config.splits, corpus)
    if models.model.reads_source:
        written = [file for name in splits for file in translation_files(run_dir, name)]
        check_unrecorded((file for file in written if file not in earlier), run_dir / EVALUATION)
    else:
        corpus, earlier = corpus.one_sided(), []  # without translations
    for file, trained_on in zip(models.files, models.corpora, strict=True):
        if uses_run_data and trained_on not in (None, corpus.fingerprint):
            check_held_out(file, corpus, splits)
    module, attention = run_tests(config, chosen, models, corpus, splits)
    report = build_report(module, attention, models, corpus, chosen, config.bootstrap)
    for file in earlier:
        file.unlink(missing_ok=True)
    write_report(run_dir, report)  # first: by it the translations are known as those of an evaluation
    write_translations(run_dir, module, corpus)
    print_report(run_dir, report)
    return report


def check_objectives(models: Models) -> None:
    """Refuse a model that is pre-trained to restore text, and has not learned to translate."""
    for file, config in zip(models.files, models.configs, strict=True):
        if config.get("objective") is not None:
            raise UserError(
                f"{file} is pre-trained to restore text, and its results.json has its losses; fine-tune it with "
                "train.py init_from.run="
            )


def check_without_translations(config: DictConfig) -> None:
    """Refuse the options that the evaluation of a language model, which translates nothing, does not read."""
    if metric_is_chosen():
        raise UserError("a language model has no translations for metric= to compare; leave it out")
    if config.get("search") is not None:
        raise UserError(
            "the evaluation of a language model translates nothing, so search= would change nothing; leave it out"
        )


def check_values(run: dict[str, Any], names: Iterable[str], file: Path) -> None:
    """Refuse options of a run, those of its metrics included, whose values have wrong types or are out of range.

    Raises:
        UserError: naming the option and the checkpoint.
    """
    for name in names:
        if name in TRAIN:
            value = taken_metrics(run) if name == "metric" else run.get(name)
            check(name, value, TRAIN[name], hint=f"; {file} holds this value, so use an intact file")


def check_downloads(metrics: dict[str, Any], composed: DictConfig, file: Path) -> None:
    """Refuse a tokenizer of a run's metrics that sacreBLEU would download, unless the command chooses it, too.

    Args:
        composed: the metrics of the command line and the defaults.
    """
    for name, options in metrics.items():
        if options.get("tokenize") != composed.get(name, {}).get("tokenize"):
            check_tokenizer(options.get("tokenize"), file)


def check_unread(config: DictConfig) -> None:
    """Refuse options that `score=FILE`, which translates nothing, does not read.

    Raises:
        UserError: if one is given.
    """
    given = [name for name in ("data", "search", "splits") if config.get(name) is not None]
    given += ["metric"] if metric_is_chosen() else []
    if given:
        raise UserError(
            f"score= reports the log-probabilities of the pairs in its file, and does not read {given[0]}=; leave one "
            "of them out"
        )


def run_tests(
    config: DictConfig, chosen: dict[str, Any], models: Models, corpus: LoadedCorpus, names: list[str]
) -> tuple[TranslationModule, dict[str, AttentionFigures]]:
    """Test the splits of these names, as at the end of a run; then read their references once more for attention.

    The attention figures of an ensemble are the mean of its members'.
    """
    if chosen["metric"]:
        warn_of_decomposed(corpus, names)
    datamodule = TranslationDataModule(
        replace(corpus, splits={name: corpus.splits[name] for name in names}),
        models.tokenizer,
        batch_tokens=chosen["batch_tokens"],
        seed=models.config["seed"],
        cache_dir=config.paths.cache_dir,
    )
    check_lengths(models.model.max_length, datamodule.longest, is_trained=True)
    datamodule.test_names = names
    metrics = build_metrics(chosen, sample_references(corpus))
    for metric in metrics.values():
        metric.check(models.model, models.config)
        metric.check_lengths(models.model, models.tokenizer, models.config)
    search: Search = instantiate(chosen["search"], _convert_="all")
    if not corpus.is_one_sided:
        for name in names:
            warn_of_limits(*limits_of(search), datamodule, name)
    module = TranslationModule(
        model=models.model,
        tokenizer=models.tokenizer,
        search=search,
        metrics=metrics,
        test_names=names,
        optimizer=None,
        scheduler=None,
        label_smoothing=models.config["label_smoothing"],
        config=models.config,
        translates=not corpus.is_one_sided,
    )
    trainer = build_trainer(models.device, chosen["precision"])
    trainer.test(module, datamodule=datamodule, verbose=False)
    models.model.to(models.device)  # the trainer has moved it to the CPU
    if not module.translates:
        return module, {name: AttentionFigures() for name in names}
    with torch.inference_mode(), trainer.precision_plugin.test_step_context():
        return module, attention_figures(models, datamodule)


def attention_figures(models: Models, datamodule: TranslationDataModule) -> dict[str, AttentionFigures]:
    """Read the references of each test set, and return the figures of its attention: the mean of all members."""
    figures = {name: AttentionFigures() for name in datamodule.test_names}
    for name, batches in zip(datamodule.test_names, datamodule.test_dataloader(), strict=True):
        for batch in (one.to(models.device) for one in batches):
            for model in models.members:
                decoded = model(batch.source, batch.source_mask, batch.target_input, need_weights=True)
                figures[name].update(decoded.weights, batch.source_mask, batch.target_mask)
    return figures


def build_trainer(device: torch.device, precision: Any) -> pl.Trainer:
    """Build Lightning's trainer for a test: one device, no logger, and a progress bar at a terminal."""
    watched = sys.stdout.isatty()
    return pl.Trainer(
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=watched,
        callbacks=[RichProgressBar(leave=False)] if watched else [],
        use_distributed_sampler=False,
    )


def choose(composed: DictConfig, run: dict[str, Any]) -> dict[str, Any]:
    """Return the options as plain data; those that the command line leaves open are the run's."""
    uses_run_data = "data" not in composed
    if uses_run_data:
        with open_dict(composed):
            composed.data = run["data"]
            keep_to_this_machine(composed.data, composed.paths.cache_dir)
    elif cleaning := cleaning_options(run["data"]):
        cleaned = composed.data
        while "cleaning" not in cleaned and isinstance(cleaned.get("corpus"), DictConfig):
            cleaned = cleaned.corpus  # whose sentences the documents are made of
        if "cleaning" in cleaned:
            with open_dict(composed):
                cleaned.cleaning = cleaning_of_other_data(cleaned.cleaning, cleaning)
    data: Any = OmegaConf.to_container(composed.data, resolve=True)
    run_metrics = taken_metrics(run)
    metric = choose_metrics(composed.metric, run_metrics, uses_run_data=uses_run_data)
    return {
        "data": data,
        "search": OmegaConf.to_container(composed.search) if "search" in composed else run["search"],
        "metric": metric,
        "batch_tokens": composed.batch_tokens or run.get("eval_batch_tokens") or run["batch_tokens"],
        "precision": composed.precision or run["trainer"]["precision"],
        "choices": run["choices"] | ({"data": composed.choices.data} if composed.choices.data else {}),
    }


def taken_metrics(run: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of a run that an evaluation takes from it."""
    return {name: options for name, options in run["metric"].items() if NOT_TAKEN.isdisjoint(targets(options))}


def keep_to_this_machine(data: DictConfig, cache_dir: str) -> None:
    """Let a run's corpus, and those within it, write only into the cache: the run may be another machine's."""
    for name in list(data):
        if name == "cache_dir":
            data[name] = cache_dir
        elif name == "copy_to":
            data[name] = None
        elif isinstance(data[name], DictConfig):
            keep_to_this_machine(data[name], cache_dir)


def cleaning_of_other_data(own: DictConfig, of_run: dict[str, Any]) -> Any:
    """Return the cleaning of the run, or, where the command line names options of another, that one.

    What changes a text stays the run's unless it is named: the model reads other data as it was trained, and as
    translate.py does. A cleaning of the user's own is as its file says.
    """
    given = given_overrides()
    named = {match[1]: one.partition("=")[2] for one in given if (match := CLEANING.match(key_of(one)))}
    if not named:
        return of_run
    if named.get(None, CLEANINGS[0]) not in CLEANINGS:
        return own
    kept = {name: of_run[name] for name in OF_TEXT if name in own and name in of_run and name not in named}
    return OmegaConf.merge(own, kept)


def metric_is_chosen() -> bool:
    """Return whether the command line names metrics."""
    return any(override.startswith("metric=") for override in given_overrides())


def choose_metrics(composed: DictConfig, run_metrics: dict[str, Any], *, uses_run_data: bool) -> dict[str, Any]:
    """Return the metrics of the command line or the defaults, those that other data adds, and the rest of the run's.

    Options that the command line leaves open are the run's, but for a metric that other data adds. A run without BLEU
    has none of the defaults that it lacks.
    """
    metrics: Any = OmegaConf.to_container(composed, resolve=True)
    left_open = {name for name in metrics if is_left_open(str(name), composed[name])}
    is_chosen = metric_is_chosen()
    if run_metrics and "bleu" not in run_metrics and not is_chosen:  # the defaults are metrics of translation
        metrics = {name: options for name, options in metrics.items() if name not in left_open}
    for name in metrics.keys() & run_metrics.keys():
        ours, theirs = metrics[name], run_metrics[name]
        if not (uses_run_data or is_chosen or name in DEFAULT_METRICS):
            continue
        if is_same(ours, theirs):
            metrics[name] = theirs | {option: ours[option] for option in given_options(str(name), composed[name])}
        elif name in left_open:
            metrics[name] = theirs
        if not uses_run_data and metrics[name] != ours:
            changed = [f"{key}={typed(value)}" for key, value in metrics[name].items() if value != ours.get(key)]
            log.info(printable(f"metric.{name} has the options of the run: {', '.join(changed)}"))
    return metrics | {name: options for name, options in run_metrics.items() if name not in metrics}


def is_left_open(name: str, options: DictConfig) -> bool:
    """Return whether the metric is that of its own file; a run on tokenized text has another one under that name."""
    usual = [of_file for stem, of_file in metric_files(name) if stem == name]
    return any(is_same(of_file, options) for of_file in usual) and not given_options(name, options)


def given_options(name: str, options: DictConfig) -> set[str]:
    """Return which options of a metric the command line names, or are other than in the file of the metric."""
    values: Any = OmegaConf.to_container(options)
    same = [(stem, of_file) for stem, of_file in metric_files(name) if is_same(of_file, values)]
    own = [(stem, of_file) for stem, of_file in same if stem == name]  # other files of the metric give its options
    differing = [{option for option in values if values[option] != of_file.get(option)} for _, of_file in own or same]
    keys = set(map(key_of, given_overrides()))
    # `${metric.rouge1.tokenize}` of rouge2 is as given as that of rouge1
    named = {option for option in values if {f"metric.{name}.{option}", str(values[option])[2:-1]} & keys}
    return named | min(differing, key=len, default=set(values))


def metric_files(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the options of the metric in each file that has it, after the name of the file, without its suffix."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else ()
    folders = [conf_directory(), *(Path(source.path) for source in sources if source.schema == "file")]
    for file in (file for folder in folders for file in sorted((folder / "metric").glob("*.yaml"))):
        config: Any = OmegaConf.to_container(OmegaConf.load(file))
        if isinstance(config, dict) and isinstance(config.get(name), dict):
            yield file.stem, config[name]


def is_same(metric: Any, other: Any) -> bool:
    """Return whether two metrics are of one class."""
    return "_target_" in metric and metric["_target_"] == other.get("_target_")


def check_languages(corpus: LoadedCorpus, loaded: Loaded | Models) -> None:
    run = loaded.config["data"]
    if not loaded.model.reads_source and corpus.target_language in (run["target_language"], "text"):
        return  # a language model reads the target side alone
    of_data, of_run = (corpus.source_language, corpus.target_language), (run["source_language"], run["target_language"])
    if of_data != of_run:
        order = ""
        if of_data == of_run[::-1] and any(corpus.origins):  # of sides read by position, which languages do not choose
            order = (
                f" and read the source from the {of_run[0]} side (data.source_column and data.target_column, or the "
                "order of two files)"
            )
        raise UserError(
            f"the data goes from {corpus.direction.replace(' → ', ' to ')}, but this model is trained from "
            f"{' to '.join(of_run)}; set data.source_language={of_run[0]} data.target_language={of_run[1]}{order}, "
            "or choose other data"
        )


def check_held_out(file: Path, corpus: LoadedCorpus, splits: Sequence[str]) -> None:
    """Refuse sets that are held out of a corpus that has changed since the training, and warn of any other change.

    Args:
        file: the checkpoint.
        splits: those to be scored.

    Raises:
        UserError: if sentences of the training may be among those to be scored.
    """
    changed = f"the data is not that with which {file} was trained"
    held_out = [name for name in splits if any(step.startswith(f"{name}: {HELD_OUT}") for step in corpus.report.counts)]
    if held_out:
        raise UserError(
            f"{changed}, and {held_out[0]} is held out of it by its sentences as they are now, so it may have "
            "sentences that the model was trained on; restore the data, or name the sentences to score, as in "
            "data=parallel data.test=FILE"
        )
    log.warning(printable(f"{changed[0].upper()}{changed[1:]}; its scores may be of other sentences than those before"))


def choose_splits(wanted: ListConfig | str | None, corpus: LoadedCorpus) -> list[str]:
    """Return the names asked for; None asks for every test set, and for the validation set where there is none."""
    known = [name for name in corpus.splits if name != "train"]
    if not wanted:
        return [name for name in known if name != "val"] or known
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in known:
            raise UserError(f"splits names {name!r}, which this data does not have; choose from: {', '.join(known)}")
    return list(dict.fromkeys(names))
