"""What Hydra would leave behind of every process of a run, left by the first alone."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence


def overrides_of_rank(environment: Mapping[str, str], typed: Sequence[str]) -> list[str]:
    """Overrides to add to those typed: none in the first process, no folder, log and copy of the config in others.

    Args:
        environment: of the process, where torchrun, SLURM and Lightning leave its rank.
    """
    if is_first_rank(environment):
        return []
    added = {"hydra.output_subdir": "null", "hydra/job_logging": "stdout", "hydra.run.dir": "."}
    if {"-m", "--multirun"} & set(typed):
        added["hydra.sweep.dir"] = tempfile.mkdtemp(prefix="seq2seq_attn_")  # a sweep's own config goes there
        atexit.register(shutil.rmtree, added["hydra.sweep.dir"], ignore_errors=True)
    there = {override.partition("=")[0] for override in typed} - {"hydra.sweep.dir"}
    return [f"{key}={value}" for key, value in added.items() if key not in there]


def is_first_rank(environment: Mapping[str, str]) -> bool:
    """Or the only one."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
    return all(environment.get(name, "0") == "0" for name in names)


def sweep_together(environment: Mapping[str, str]) -> bool:
    """Whether torchrun or SLURM has started several ranks, each of which goes through all jobs of a sweep."""
    return any(int(environment.get(name, "1")) > 1 for name in ("WORLD_SIZE", "SLURM_NTASKS"))
