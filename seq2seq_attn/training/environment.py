"""The process of a training run, and the run folder that its ranks share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.ranks import watch_parent
from seq2seq_attn.distributed.run_folder import one_slurm_task, shared_run_dir
from seq2seq_attn.distributed.run_lock import only_process_in
from seq2seq_attn.process import quieten


@contextmanager
def run_environment(composed: DictConfig) -> Iterator[Path]:
    """Prepare this process for a run and lock the run folder, which is yielded and put into the configuration."""
    quieten()
    watch_parent()
    if composed.num_threads:
        torch.set_num_threads(composed.num_threads)
        os.environ["OMP_NUM_THREADS"] = str(composed.num_threads)  # or Lightning would set its own
    pl.seed_everything(composed.seed, workers=True, verbose=False)
    if not is_first():  # warnings are the same in all processes, and the first prints them
        logging.getLogger("seq2seq_attn").setLevel(logging.ERROR)
    with rank_before_trainer(), one_slurm_task(), shared_run_dir(composed.paths.run_dir) as shared, logged_warnings():
        run_dir = Path(shared)
        with only_process_in(run_dir) if is_first() else nullcontext():
            OmegaConf.set_readonly(composed, False)
            composed.paths.run_dir = shared
            yield run_dir


@contextmanager
def rank_before_trainer() -> Iterator[None]:
    """Tell Lightning which process is the first: on a node that is started by hand it knows only by the Trainer."""
    function: Any = rank_zero_only
    before = function.rank
    function.rank = before if is_first() else max(1, before)
    try:
        yield
    finally:
        function.rank = before


@contextmanager
def logged_warnings() -> Iterator[None]:
    """Send Python's warnings, as those of torch, to the log lines and so to train.log."""
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
