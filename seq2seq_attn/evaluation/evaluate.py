"""Score a checkpoint on any corpus, by the very steps that test a model at the end of its training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from seq2seq_attn.checkpoint.load import Loaded, check_saved_options
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.evaluate_ensemble import evaluate_ensemble
from seq2seq_attn.evaluation.pair_log_prob import score
from seq2seq_attn.evaluation.report import Evaluated, build_report, print_report, write_report
from seq2seq_attn.evaluation.teacher_forcing import read_pairs
from seq2seq_attn.evaluation.trainer import build_trainer
from seq2seq_attn.inference.models import READ, Models, load_models
from seq2seq_attn.metric.attention import AttentionFigures
from seq2seq_attn.metric.confidence import check_bootstrap
from seq2seq_attn.options import EVALUATE, check_options
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.training.results import collect_figures, write_translations
from seq2seq_attn.training.run import build_metrics
from seq2seq_attn.training.translation_module import TranslationModule


def evaluate(config: DictConfig) -> dict[str, Any]:
    """Translate, score, write the files and print the figures; gives what `evaluation.json` holds.

    With `score=FILE` nothing is translated: see `score`.
    """
    check_options(config, EVALUATE)
    models = load_models(config)
    if config.get("score") is not None:
        return score(config, models)
    check_saved_options(models.config, READ, models.files[0])
    check_bootstrap(config.bootstrap)
    chosen = choose(config, models.config)
    pl.seed_everything(models.config["seed"], workers=True, verbose=False)
    corpus: LoadedCorpus = instantiate(chosen["data"], _convert_="all").load()
    check_languages(corpus, models)
    names = choose_splits(config.splits, corpus)
    datamodule = TranslationDataModule(
        replace(corpus, splits={name: corpus.splits[name] for name in names}),
        models.tokenizer,
        batch_tokens=chosen["batch_tokens"],
        seed=models.config["seed"],
        cache_dir=config.paths.cache_dir,
    )
    datamodule.test_names = names
    evaluated = run_tests(models, chosen, datamodule)
    run_dir = Path(config.paths.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    write_translations(run_dir, evaluated.module, corpus)
    report = build_report(evaluated, models, corpus, chosen, config.bootstrap)
    write_report(run_dir, report)
    print_report(run_dir, report)
    return report


def run_tests(models: Models, chosen: dict[str, Any], datamodule: TranslationDataModule) -> Evaluated:
    """One model is tested by the trainer, as at the end of its run."""
    module = build_module(chosen, models, datamodule.test_names)
    trainer = build_trainer(models.device, chosen["precision"])
    plugin = trainer.precision_plugin
    plugin.convert_module(models.model)
    if len(models.members) == 1:
        trainer.test(module, datamodule=datamodule, verbose=False)
        figures = {name: collect_figures(trainer, module, name) for name in module.test_names}
    else:
        figures = evaluate_ensemble(models, module, datamodule, plugin.test_step_context())
    models.model.to(models.device)  # the trainer has put it back
    with torch.inference_mode(), plugin.test_step_context():
        attention = {
            name: attention_figures(models, loader)
            for name, loader in zip(module.test_names, datamodule.test_dataloader(), strict=True)
        }
    return Evaluated(module, figures, attention)


def attention_figures(models: Models, batches: Any) -> AttentionFigures:
    """Of the references; those of an ensemble are the mean of its members'."""
    found = AttentionFigures()
    for batch in batches:
        on_device = batch.to(models.device)
        for decoded in read_pairs(models.members, on_device, need_weights=True):
            found.update(decoded.weights, on_device.source_mask, on_device.target_mask)
    return found


def choose(composed: DictConfig, run: dict[str, Any]) -> dict[str, Any]:
    """Plain data; what the command line leaves open is as in the run."""
    own_data = "data" not in composed
    if own_data:
        with open_dict(composed):
            composed.data = run["data"]
        if "cache_dir" in run["data"]:
            composed.data.cache_dir = composed.paths.cache_dir  # the run may come from another machine
    data, metric = (OmegaConf.to_container(node, resolve=True) for node in (composed.data, composed.metric))
    assert isinstance(metric, dict)
    if own_data:
        left_open = {name for name in metric if is_left_open(str(name), composed.metric[name])}
        metric |= {name: options for name, options in run["metric"].items() if name in left_open}
    return {
        "data": data,
        "search": OmegaConf.to_container(composed.search) if "search" in composed else run["search"],
        "metric": metric | {name: options for name, options in run["metric"].items() if name not in metric},
        "batch_tokens": composed.batch_tokens or run["batch_tokens"],
        "precision": composed.precision or run["trainer"]["precision"],
        "choices": run["choices"] | ({"data": composed.choices.data} if composed.choices.data else {}),
    }


def is_left_open(name: str, options: DictConfig) -> bool:
    """Whether the metric is as its file says: a run on tokenized text, say, has its own of that name."""
    file = conf_directory() / "metric" / f"{name}.yaml"
    return file.is_file() and bool(OmegaConf.select(OmegaConf.load(file), name) == options)


def check_languages(corpus: LoadedCorpus, loaded: Loaded | Models) -> None:
    run = loaded.config["data"]
    if (corpus.source_language, corpus.target_language) != (run["source_language"], run["target_language"]):
        raise UserError(
            f"the data goes from {corpus.direction.replace(' → ', ' to ')}, but this model translates from "
            f"{run['source_language']} to {run['target_language']}; set data.source_language={run['source_language']} "
            f"data.target_language={run['target_language']}, or choose other data"
        )


def choose_splits(wanted: ListConfig | str | None, corpus: LoadedCorpus) -> list[str]:
    """The names asked for; None: every test set."""
    there = [name for name in corpus.splits if name != "train"]
    if not wanted:
        return [name for name in there if name != "val"]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in there:
            raise UserError(f"splits names {name!r}, which this data does not have; choose from: {', '.join(there)}")
    return list(dict.fromkeys(names))


def build_module(chosen: dict[str, Any], models: Models, names: list[str]) -> TranslationModule:
    """The trained model, of several the first, with what scores it."""
    return TranslationModule(
        model=models.members[0],
        tokenizer=models.tokenizer,
        search=instantiate(chosen["search"], _convert_="all"),
        metrics=build_metrics(chosen),
        test_names=names,
        optimizer=None,
        scheduler=None,
        label_smoothing=models.config["label_smoothing"],
        config=models.config,
    )
