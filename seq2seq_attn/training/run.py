"""One training run, from a composed configuration to a tested model and its folder."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import Checkpoint, ProgressBar

from seq2seq_attn.callback.autosave import Autosave
from seq2seq_attn.checkpoint.changes import check_changes
from seq2seq_attn.checkpoint.checkpoint_file import prepare_folder
from seq2seq_attn.checkpoint.checkpoint_io import AtomicCheckpointIO
from seq2seq_attn.checkpoint.exact_resume import ExactResume
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.checkpoint.resume import forget_old_run, results_of_complete, starting_point
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.distributed.ranks import ending_together, watch_parent
from seq2seq_attn.distributed.run_folder import announce, is_first, shared_run_dir
from seq2seq_attn.distributed.run_lock import locked
from seq2seq_attn.distributed.sweep_job import sweep_job
from seq2seq_attn.errors import UserError
from seq2seq_attn.logger.csv_logger import CsvLogger
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.process import quieten
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.compatibility import check_lengths, check_positions, check_slots
from seq2seq_attn.training.continuation import check_continuation
from seq2seq_attn.training.model_summary import print_model
from seq2seq_attn.training.provenance import write_provenance
from seq2seq_attn.training.recipe import check_recipe, print_missing_recipe
from seq2seq_attn.training.results import (
    collect_results,
    log_translations,
    print_data,
    print_results,
    write_results,
    write_translations,
)
from seq2seq_attn.training.tokenized_metric_check import check_tokenized
from seq2seq_attn.training.translation_module import TranslationModule

SWITCHES = {"enable_progress_bar": (ProgressBar,), "enable_checkpointing": (Checkpoint, Autosave)}


def train(composed: DictConfig) -> dict[str, Any]:
    """Train, validate, test and write the run folder; gives what `results.json` holds."""
    quieten()
    watch_parent()
    check_options(composed, TRAIN)
    check_recipe()
    if composed.num_threads:
        torch.set_num_threads(composed.num_threads)
        os.environ["OMP_NUM_THREADS"] = str(composed.num_threads)  # or Lightning would set its own
    pl.seed_everything(composed.seed, workers=True, verbose=False)
    if not is_first():
        # Warnings are of all processes, and the first says them.
        logging.getLogger("seq2seq_attn").setLevel(logging.ERROR)
    with shared_run_dir(composed.paths.run_dir) as run_dir, locked(Path(run_dir)) if is_first() else nullcontext():
        OmegaConf.set_readonly(composed, False)
        composed.paths.run_dir = run_dir
        typed = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
        check_slots(OmegaConf.to_yaml(composed.model, resolve=False), typed)
        done = results_of_complete(composed.resume, Path(run_dir), composed)
        if done is not None:
            announce(run_dir)
            return done
        return train_in(Path(run_dir), composed)


def train_in(run_dir: Path, composed: DictConfig) -> dict[str, Any]:
    """All of `train` behind the choice of the folder."""
    resumed = starting_point(composed.resume, composed.ckpt_path, run_dir)
    corpus: LoadedCorpus = instantiate(composed.data, _convert_="all").load()
    tokenizer: SentencePieceTokenizer = instantiate(composed.tokenizer, _convert_="all")
    tokenizer.train(corpus.splits["train"].sources, corpus.splits["train"].targets)
    config = resolve(composed, tokenizer)
    datamodule = TranslationDataModule(
        corpus,
        tokenizer,
        batch_tokens=config["batch_tokens"],
        seed=config["seed"],
        cache_dir=config["paths"]["cache_dir"],
        val_sentences=config["val_sentences"],
    )
    module = build_module(config, tokenizer, datamodule.test_names)
    if resumed is not None:
        check_continuation(resumed, module)
        check_changes(resumed, config)
    check_positions(module.model)
    check_lengths(module.model.max_length, datamodule.longest)
    forget_old_run(run_dir, resumed)
    announce(str(run_dir))
    trainer = build_trainer(config, run_dir)
    if trainer.is_global_zero:
        print_data(corpus, tokenizer, datamodule)
        print_model(module.model)
        print_missing_recipe(config)
        write_provenance(run_dir, config, corpus)
    with sweep_job(), ending_together(trainer):
        trainer.fit(module, datamodule=datamodule, ckpt_path=resumed, weights_only=True)
        best = finish(trainer, module, datamodule, run_dir)
        module.load_state_dict(read_checkpoint(best)["state_dict"])
        trainer.test(module, datamodule=datamodule, verbose=False)
        results = collect_results(trainer, module, config)
    if trainer.is_global_zero:
        write_translations(run_dir, module, corpus)
        if config["log_text"]:
            log_translations(trainer.loggers, module, corpus)
        write_results(run_dir, results)
        print_results(run_dir, results)
    for logger in trainer.loggers:
        if close := getattr(logger, "finish", None):
            close()  # or the next run of this process would be written into this one
    return results


def resolve(composed: DictConfig, tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """The configuration as plain data, with the sizes that only the tokenizer knows filled in."""
    composed.model.source_vocab_size = tokenizer.source_vocab_size
    composed.model.target_vocab_size = tokenizer.target_vocab_size
    config = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items() if key != "hydra"}


def build_module(config: dict[str, Any], tokenizer: SentencePieceTokenizer, test_names: list[str]) -> TranslationModule:
    """The model from its configuration, with what trains and scores it."""
    return TranslationModule(
        model=instantiate(config["model"], _convert_="all"),
        tokenizer=tokenizer,
        search=instantiate(config["search"], _convert_="all"),
        metrics=build_metrics(config),
        test_names=test_names,
        optimizer=instantiate(config["optimizer"], _convert_="all"),
        scheduler=instantiate(config["scheduler"], _convert_="all"),
        label_smoothing=config["label_smoothing"],
        config=config,
        r_drop_alpha=config["r_drop_alpha"],
        token_dropout=config["token_dropout"],
    )


def build_metrics(config: dict[str, Any]) -> dict[str, Any]:
    """The text metrics by name; BLEU is among them, since checkpoints are chosen by it."""
    check_tokenized(config["data"], config.get("metric", {}))
    metrics = {name: instantiate(metric, _convert_="all") for name, metric in config.get("metric", {}).items()}
    if "bleu" not in metrics:
        raise UserError("metric lacks bleu, by which the best checkpoint is chosen; use metric=[bleu,...]")
    return metrics


def build_trainer(config: dict[str, Any], run_dir: Path) -> pl.Trainer:
    """Lightning's Trainer with the callbacks and loggers chosen, less those that its own options switch off."""
    off = tuple(kind for option, kinds in SWITCHES.items() if not config["trainer"][option] for kind in kinds)
    callbacks = [instantiate(callback, _convert_="all") for callback in config.get("callback", {}).values()]
    callbacks = [callback for callback in callbacks if not isinstance(callback, off)]
    loggers: list[Any] = [CsvLogger(run_dir)]
    loggers += [instantiate(logger, _convert_="all") for logger in config.get("logger", {}).values()]
    for logger in loggers[1:]:
        logger.log_hyperparams(config)
    prepare_folder(run_dir / "checkpoints")
    try:
        return instantiate(
            config["trainer"],
            callbacks=[ExactResume(), *callbacks],
            logger=loggers,
            plugins=[*(config["trainer"]["plugins"] or []), AtomicCheckpointIO(run_dir / "checkpoints")],
            default_root_dir=str(run_dir),
            _convert_="all",
        )
    except Exception as error:
        cause = error.__cause__ or error
        raise UserError(f"Lightning's Trainer refuses its options: {cause}; mend the trainer.… override") from error


def finish(trainer: Any, module: TranslationModule, datamodule: TranslationDataModule, run_dir: Path) -> Path:
    """The best checkpoint; weights that training left unvalidated are saved and validated first."""
    best, last = run_dir / "checkpoints" / "best.ckpt", run_dir / "checkpoints" / "last.ckpt"
    had_best, had_last = trainer.strategy.broadcast((best.exists(), last.exists()))
    validated = module.validated_step == trainer.global_step and had_best
    if not (validated and had_last):
        trainer.save_checkpoint(last)
    if validated:
        return best
    score = trainer.checkpoint_callback.best_model_score if trainer.checkpoint_callback else None
    found = trainer.validate(module, datamodule=datamodule, verbose=False)  # nothing if limit_val_batches=0
    if not had_best or score is None or (found and found[0]["val/bleu"] > float(score)):
        trainer.save_checkpoint(best)
    return best
