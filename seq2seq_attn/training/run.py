"""One training run, from a composed configuration to a tested model and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seq2seq_attn.checkpoint.checkpoint_file import BEST, LAST, prepare_run_folder
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.checkpoint.resume import results_of_complete, starting_point
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.distributed.ranks import ending_together
from seq2seq_attn.distributed.run_folder import announce
from seq2seq_attn.distributed.sweep_job import sweep_job
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.training.build import build, build_trainer
from seq2seq_attn.training.checks import check_config, check_run
from seq2seq_attn.training.environment import run_environment
from seq2seq_attn.training.provenance import record_start
from seq2seq_attn.training.results import collect_results, record_results
from seq2seq_attn.training.translation_module import TranslationModule


def train(composed: DictConfig) -> dict[str, Any]:
    """Train, validate, test and write the run folder; return what `results.json` holds."""
    check_options(composed, TRAIN)
    check_config(composed)
    with run_environment(composed) as run_dir:
        complete = results_of_complete(composed, run_dir)
        if complete is not None:
            announce(str(run_dir))
            return complete
        resumed = starting_point(composed, run_dir)
        module, datamodule = build(composed)
        check_run(module, datamodule, resumed)
        prepare_run_folder(run_dir, resumes=resumed is not None)
        announce(str(run_dir))  # the other ranks have waited for the caches to be filled
        trainer = build_trainer(module.config, run_dir)
        if trainer.is_global_zero:
            record_start(run_dir, module, datamodule)
        ckpt_path = None if resumed is None else resumed.file
        del resumed  # its tensors
        with sweep_job(), ending_together(trainer):
            trainer.fit(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
            best = best_checkpoint(trainer, module, datamodule, run_dir)
            module.load_state_dict(read_checkpoint(best)["state_dict"])
            trainer.test(module, datamodule=datamodule, verbose=False)
            results = collect_results(trainer, module)
        if trainer.is_global_zero:
            record_results(run_dir, results, module, datamodule.corpus, trainer.loggers)
        return results


def best_checkpoint(trainer: Any, module: TranslationModule, datamodule: TranslationDataModule, run_dir: Path) -> Path:
    """Return the best checkpoint; weights that training left unvalidated are saved and validated first."""
    best, last = run_dir / "checkpoints" / BEST, run_dir / "checkpoints" / LAST
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
