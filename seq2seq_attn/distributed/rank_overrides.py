"""The overrides of a command line, and those added in processes that are not the first: they leave no files."""

from __future__ import annotations

import os
from collections.abc import Sequence


def is_override(word: str) -> bool:
    """Return whether a word of a command line is an override, not a flag of Hydra's or the value of one."""
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def overrides_of_rank(typed: Sequence[str]) -> list[str]:
    """Return overrides to add to those typed: none in the first process; no folder, log and config copy in others."""
    if is_first():
        return []
    added = {"hydra.output_subdir": "null", "hydra/job_logging": "stdout", "hydra.run.dir": "."}
    there = {override.partition("=")[0] for override in typed}
    return [f"{key}={value}" for key, value in added.items() if key not in there]


def is_first() -> bool:
    """Return whether this process is the first of its run or the only one, as torchrun, SLURM and Lightning say it.

    torchrun may give the first rank to another node than Slurm does, where `srun` has started it on each.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return os.environ.get("RANK", "0") == "0"
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))
