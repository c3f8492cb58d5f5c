"""A job of a sweep on several devices: Lightning starts processes for it alone, and the next job has its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from seq2seq_attn.distributed.run_folder import launcher

SWEEPING = ("-m", "--multirun")
LEFT = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # by Lightning, for its processes


@contextmanager
def sweep_job() -> Iterator[None]:
    """Around what several processes do. Lightning starts them by the command line, which is that of the whole sweep.

    Where they were started by torchrun or SLURM each of them sweeps, and so it is where there is no sweep.
    """
    started = "LOCAL_RANK" in os.environ or launcher() is not None
    if started or not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        yield
        return
    whole, there = sys.argv, set(os.environ)
    sys.argv = [whole[0], *of_one_job(whole[1:], HydraConfig.get().overrides.task)]
    try:
        yield
    finally:
        sys.argv = whole
        for name in set(LEFT) - there:
            os.environ.pop(name, None)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def of_one_job(arguments: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """The flags of a sweep with the overrides of one of its jobs."""
    typed = [argument for argument in arguments if argument not in SWEEPING]
    flags = [flag for flag in typed if flag.startswith("-") or not ("=" in flag or flag.startswith("~"))]
    return [*flags, *overrides, "hydra.mode=RUN"]  # an experiment or sweep=optuna would sweep in each rank
