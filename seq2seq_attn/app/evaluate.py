"""Score a checkpoint on any corpus, by the very steps that test a model at the end of its training."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from pytorch_lightning.callbacks import RichProgressBar

from seq2seq_attn.app.device import choose_device
from seq2seq_attn.app.evaluation_report import build_report, print_report, write_report
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.checkpoint import Loaded, check_targets, find_checkpoint, load
from seq2seq_attn.training.result import write_translations
from seq2seq_attn.training.run import build_metrics, quieten
from seq2seq_attn.training.translation_module import TranslationModule


def evaluate(config: DictConfig) -> dict[str, Any]:
    """Translate, score, write the files and print the figures; gives what `evaluation.json` holds."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError("evaluate.py needs ckpt_path=RUN, a run folder or a .ckpt file")
    quieten()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = choose_device(config.device)
    file = find_checkpoint(config.ckpt_path)
    loaded = load(str(file))
    check_targets(loaded.config["metric"], file)
    chosen = choose(config, loaded.config)
    pl.seed_everything(loaded.config["seed"], workers=True, verbose=False)
    corpus: LoadedCorpus = instantiate(chosen["data"], _convert_="all").load()
    check_languages(corpus, loaded)
    names = choose_splits(config.splits, corpus)
    datamodule = TranslationDataModule(
        replace(corpus, splits={name: corpus.splits[name] for name in names}), loaded.tokenizer,
        batch_tokens=chosen["batch_tokens"], seed=loaded.config["seed"], cache_dir=config.paths.cache_dir,
    )  # fmt: skip
    datamodule.test_names = names
    module = build_module(chosen, loaded, names)
    trainer = build_trainer(device, chosen["precision"])
    trainer.test(module, datamodule=datamodule, verbose=False)
    run_dir = Path(config.paths.run_dir)
    write_translations(run_dir, module, corpus)
    report = build_report(trainer, module, corpus, file, chosen)
    write_report(run_dir, report)
    print_report(run_dir, report)
    return report


def choose(composed: DictConfig, run: dict[str, Any]) -> dict[str, Any]:
    """Plain data; what the command line leaves open is as in the run."""
    if "data" not in composed:
        with open_dict(composed):
            composed.data = run["data"]
        if "cache_dir" in run["data"]:
            composed.data.cache_dir = composed.paths.cache_dir  # the run may come from another machine
    data, metric = (OmegaConf.to_container(node, resolve=True) for node in (composed.data, composed.metric))
    assert isinstance(metric, dict)
    return {
        "data": data,
        "search": OmegaConf.to_container(composed.search) if "search" in composed else run["search"],
        "metric": metric | {name: options for name, options in run["metric"].items() if name not in metric},
        "batch_tokens": composed.batch_tokens or run["batch_tokens"],
        "precision": composed.precision or run["trainer"]["precision"],
        "choices": run["choices"] | ({"data": composed.choices.data} if composed.choices.data else {}),
    }


def check_languages(corpus: LoadedCorpus, loaded: Loaded) -> None:
    run = loaded.config["data"]
    if (corpus.source_language, corpus.target_language) != (run["source_language"], run["target_language"]):
        raise UserError(
            f"the data goes from {corpus.source_language} to {corpus.target_language}, but this model translates from "
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
            raise UserError(
                f"splits names {name!r}, which this data does not have; choose from: {', '.join(there)}"
            )
    return list(dict.fromkeys(names))


def build_module(chosen: dict[str, Any], loaded: Loaded, names: list[str]) -> TranslationModule:
    """The trained model with what scores it."""
    return TranslationModule(
        model=loaded.model, tokenizer=loaded.tokenizer, search=instantiate(chosen["search"], _convert_="all"),
        metrics=build_metrics(chosen), test_names=names, optimizer=None, scheduler=None,
        label_smoothing=loaded.config["label_smoothing"], config=loaded.config,
    )  # fmt: skip


def build_trainer(device: torch.device, precision: Any) -> pl.Trainer:
    """One device, no logger, and a progress bar where somebody looks."""
    watched = sys.stdout.isatty()
    return pl.Trainer(
        accelerator=device.type, devices=[device.index or 0] if device.type == "cuda" else 1, precision=precision,
        logger=False, enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=watched,
        callbacks=[RichProgressBar(leave=False)] if watched else [], use_distributed_sampler=False,
    )  # fmt: skip
