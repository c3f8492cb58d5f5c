"""One training run, from a composed configuration to a tested model and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pytorch_lightning.plugins.precision import DoublePrecision

from seq2seq_attn.checkpoint.best import load_best
from seq2seq_attn.checkpoint.checkpoint_file import is_latest_of, prepare_run_folder
from seq2seq_attn.checkpoint.resume import results_of_complete, starting_point
from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.ranks import ending_together
from seq2seq_attn.distributed.run_folder import announce
from seq2seq_attn.distributed.run_lock import check_records, is_folder_of_hydra
from seq2seq_attn.distributed.sweep_job import sweep_job
from seq2seq_attn.training.build import build, build_trainer, start_loggers
from seq2seq_attn.training.check_config import check_training
from seq2seq_attn.training.check_run import check_end, check_interval, check_run, check_shares
from seq2seq_attn.training.devices import check_processes, check_requeued
from seq2seq_attn.training.environment import run_environment
from seq2seq_attn.training.initialize import initialize
from seq2seq_attn.training.parent import kept_tokenizer, read_parent
from seq2seq_attn.training.provenance import RecordStart
from seq2seq_attn.training.results import collect_results, record_results


def train(composed: DictConfig) -> dict[str, Any]:
    """Train, validate, test and write the run folder; return what `results.json` holds."""
    check_training(composed)
    with run_environment(composed) as run_dir:
        if is_first() and not is_folder_of_hydra(run_dir):
            check_records(run_dir, "paths.run_dir")
        complete = results_of_complete(composed, run_dir)
        if complete is not None:
            announce(str(run_dir))
            return complete
        check_requeued(run_dir)
        resumed = starting_point(composed, run_dir)
        parent = read_parent(composed, resumed)
        module, datamodule = build(composed, kept_tokenizer(composed, resumed, parent))
        check_run(module, datamodule, resumed)
        initialize(module, datamodule, parent, resumed)
        announce(str(run_dir))  # the other ranks have waited for the caches to be filled
        trainer = build_trainer(module.config, run_dir)
        check_processes(trainer)
        check_end(trainer, module.scheduler)
        check_interval(trainer, datamodule)
        check_shares(trainer, datamodule)
        prepare_run_folder(run_dir)
        continues = resumed is not None and is_latest_of(Path(resumed.file), run_dir)
        start_loggers(trainer, module.config, continues=continues)
        trainer.callbacks.append(RecordStart(run_dir))  # type: ignore[attr-defined] # last: another may refuse to start
        ckpt_path = None if resumed is None else resumed.file
        del resumed, parent  # their tensors
        with sweep_job(), ending_together(trainer):
            if isinstance(trainer.precision_plugin, DoublePrecision):  # before Lightning restores numbers of float64
                trainer.precision_plugin.convert_module(module)
            trainer.fit(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
            load_best(trainer, module, datamodule, run_dir / "checkpoints")
            trainer.test(module, datamodule=datamodule, verbose=False)
            results = collect_results(trainer, module)
        if trainer.is_global_zero:
            record_results(run_dir, results, module, datamodule.corpus, trainer.loggers)
        return results
