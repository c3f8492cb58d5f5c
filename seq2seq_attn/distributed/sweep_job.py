"""A job of a sweep on several devices: Lightning starts processes for it alone, and the next job has its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from hydra.core.hydra_config import HydraConfig

from seq2seq_attn.distributed.rank_overrides import is_override
from seq2seq_attn.distributed.run_folder import launcher
from seq2seq_attn.options import in_sweep

# Lightning leaves them in the environment for its processes.
LEFT = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def sweep_job() -> Iterator[None]:
    """Set the command line of one job for the ranks that Lightning starts by it, and clean up after them."""
    started = "LOCAL_RANK" in os.environ or launcher() is not None
    if started or not in_sweep():
        yield
        return
    whole, there = sys.argv, set(os.environ)
    given = HydraConfig.get().overrides
    searched = [word for word in given.hydra if word.lstrip("+").startswith("hydra.searchpath=")]
    sys.argv = [whole[0], *job_arguments(whole[1:], [*searched, *given.task])]
    try:
        yield
    finally:
        sys.argv = whole
        for name in set(LEFT) - there:
            os.environ.pop(name, None)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def job_arguments(arguments: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the flags of a sweep with the overrides of one of its jobs."""
    flags = [word for word in arguments if word not in ("-m", "--multirun") and not is_override(word)]
    return [*flags, *overrides, "hydra.mode=RUN"]  # an experiment or sweep=optuna would sweep in each rank
