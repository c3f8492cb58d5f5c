"""One training run, from a composed configuration to a tested model and its folder."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from pytorch_lightning.loggers import CSVLogger, WandbLogger

from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.card import print_model
from seq2seq_attn.training.checkpoint import find_checkpoint, read_checkpoint
from seq2seq_attn.training.provenance import write_provenance
from seq2seq_attn.training.result import (
    collect_results,
    log_translations,
    print_data,
    print_results,
    write_results,
    write_translations,
)
from seq2seq_attn.training.slot import check_lengths, check_positions, check_slots
from seq2seq_attn.training.translation_module import TranslationModule

SWITCHES = {"enable_progress_bar": ProgressBar, "enable_checkpointing": Checkpoint}


def train(composed: DictConfig) -> dict[str, Any]:
    """Train, validate, test and write the run folder; gives what `results.json` holds."""
    quieten()
    if composed.num_threads:
        torch.set_num_threads(composed.num_threads)
    pl.seed_everything(composed.seed, workers=True, verbose=False)
    run_dir = Path(composed.paths.run_dir)
    typed = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    check_slots(OmegaConf.to_yaml(composed.model, resolve=False), typed)
    resumed = None if composed.ckpt_path is None else find_checkpoint(composed.ckpt_path)
    corpus: LoadedCorpus = instantiate(composed.data, _convert_="all").load()
    tokenizer: SentencePieceTokenizer = instantiate(composed.tokenizer, _convert_="all")
    tokenizer.train(corpus.splits["train"].sources, corpus.splits["train"].targets)
    if resumed is not None:
        check_vocabulary(resumed, tokenizer)
    config = resolve(composed, tokenizer)
    datamodule = TranslationDataModule(
        corpus, tokenizer, batch_tokens=config["batch_tokens"], seed=config["seed"],
        cache_dir=config["paths"]["cache_dir"],
    )  # fmt: skip
    module = build_module(config, tokenizer, datamodule.test_names)
    check_positions(module.model)
    check_lengths(module.model.max_length, datamodule.longest)
    trainer = build_trainer(config, run_dir)
    print_data(corpus, tokenizer, datamodule)
    print_model(module.model)
    write_provenance(run_dir, config, corpus)
    trainer.fit(module, datamodule=datamodule, ckpt_path=resumed, weights_only=True)
    if trainer.interrupted:
        raise KeyboardInterrupt
    best = finish(trainer, module, datamodule, run_dir)
    module.load_state_dict(read_checkpoint(best)["state_dict"])
    trainer.test(module, datamodule=datamodule, verbose=False)
    write_translations(run_dir, module, corpus)
    if config["log_text"]:
        log_translations(trainer.loggers, module, corpus)
    results = collect_results(trainer, module, config)
    write_results(run_dir, results)
    print_results(run_dir, results)
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()  # or the next run of this process would be written into this one
    return results


def quieten() -> None:
    """Leave out what Lightning says of itself and what its user cannot change."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        ".*Experiment logs directory.*",  # Hydra has written into the run folder before
        ".*treespec.*deprecated.*",
        ".*weights_only.*",
        ".*`tensorboardX` has been removed.*",
    ):
        warnings.filterwarnings("ignore", message)


def resolve(composed: DictConfig, tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """The configuration as plain data, with the sizes that only the tokenizer knows filled in."""
    OmegaConf.set_readonly(composed, False)
    composed.model.source_vocab_size = tokenizer.source_vocab_size
    composed.model.target_vocab_size = tokenizer.target_vocab_size
    config = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items() if key != "hydra"}


def check_vocabulary(file: Path, tokenizer: SentencePieceTokenizer) -> None:
    """Refuse to continue a run whose pieces are others: its embeddings would mean other words."""
    other = SentencePieceTokenizer.from_state(read_checkpoint(file)["tokenizer"])
    if other.fingerprint != tokenizer.fingerprint:
        raise UserError(
            f"{file} was trained with another vocabulary ({other.source_vocab_size} and {other.target_vocab_size} "
            f"pieces, here {tokenizer.source_vocab_size} and {tokenizer.target_vocab_size}); give that run's data and "
            "tokenizer options, or leave out ckpt_path"
        )


def build_module(
    config: dict[str, Any], tokenizer: SentencePieceTokenizer, test_names: list[str]
) -> TranslationModule:
    """The model from its configuration, with what trains and scores it."""
    return TranslationModule(
        model=instantiate(config["model"], _convert_="all"), tokenizer=tokenizer,
        search=instantiate(config["search"], _convert_="all"),
        metrics=build_metrics(config),
        test_names=test_names, optimizer=instantiate(config["optimizer"], _convert_="all"),
        scheduler=instantiate(config["scheduler"], _convert_="all"),
        label_smoothing=config["label_smoothing"], config=config,
    )  # fmt: skip


def build_metrics(config: dict[str, Any]) -> dict[str, Any]:
    """The text metrics by name; BLEU is among them, since checkpoints are chosen by it."""
    metrics = {
        name: instantiate(metric, _convert_="all") for name, metric in config.get("metric", {}).items()
    }
    if "bleu" not in metrics:
        raise UserError("metric lacks bleu, by which the best checkpoint is chosen; use metric=[bleu,...]")
    return metrics


def build_trainer(config: dict[str, Any], run_dir: Path) -> pl.Trainer:
    """Lightning's Trainer with the callbacks and loggers chosen, less those that its own options switch off."""
    off = tuple(kind for option, kind in SWITCHES.items() if not config["trainer"][option])
    callbacks = [instantiate(callback, _convert_="all") for callback in config.get("callback", {}).values()]
    callbacks = [callback for callback in callbacks if not isinstance(callback, off)]
    loggers = [CSVLogger(str(run_dir), name="", version="", flush_logs_every_n_steps=1)]
    loggers += [instantiate(logger, _convert_="all") for logger in config.get("logger", {}).values()]
    for logger in loggers[1:]:
        logger.log_hyperparams(config)
    try:
        return instantiate(
            config["trainer"],
            callbacks=callbacks,
            logger=loggers,
            default_root_dir=str(run_dir),
            _convert_="all",
        )
    except Exception as error:
        cause = error.__cause__ or error
        raise UserError(
            f"Lightning's Trainer refuses its options: {cause}; mend the trainer.… override"
        ) from error


def finish(trainer: Any, module: TranslationModule, datamodule: TranslationDataModule, run_dir: Path) -> Path:
    """The best checkpoint; weights that training left unvalidated are validated and saved first."""
    folder = run_dir / "checkpoints"
    best = folder / "best.ckpt"
    score = trainer.checkpoint_callback.best_model_score if trainer.checkpoint_callback else None
    if module.validated_step == trainer.global_step and best.exists():
        return best
    found = trainer.validate(module, datamodule=datamodule, verbose=False)[0]["val/bleu"]
    names = (
        ["last.ckpt"]
        if best.exists() and score is not None and found <= float(score)
        else ["last.ckpt", "best.ckpt"]
    )
    for name in names:
        trainer.save_checkpoint(folder / name)
    return best
