"""One run folder for all processes of a run: the first one's, whichever way they were started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from lightning_fabric.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from torch.distributed import Store, rendezvous

from seq2seq_attn.distributed.collectives import num_ranks
from seq2seq_attn.errors import UserError

VARIABLE, KEY = "SEQ2SEQ_ATTN_RUN_DIR", "seq2seq_attn/run_dir"
STORES: list[Store] = []  # that of the first process answers as long as it is kept


@contextmanager
def shared_run_dir(own: str) -> Iterator[str]:
    """`first_run_dir`. What `announce` leaves in the environment is for the processes of this run, and goes with it."""
    try:
        yield first_run_dir(own)
    finally:
        os.environ.pop(VARIABLE, None)


def first_run_dir(own: str) -> str:
    """The folder of the first process. Others wait until it announces it, and find the caches filled.

    Args:
        own: that of this process. Hydra names it by the second, so the others are not let make one: theirs is the
            working directory, unless the command line names it.

    Raises:
        UserError: in a process that nothing connects to the first one.
    """
    if is_first():
        return own
    if num_ranks() > 1:  # a sweep's second job
        return broadcast(own)
    environment = launcher()
    if environment is not None:
        return connect(environment).get(KEY).decode()
    if VARIABLE in os.environ:  # started by the first process
        return os.environ[VARIABLE]
    if Path(own).resolve() != Path.cwd():
        return own
    raise UserError(
        "a node that is started by hand cannot know the run folder of the first; give all of them the same one with "
        "hydra.run.dir=..., or start them with torchrun or srun"
    )


def announce(run_dir: str) -> None:
    """To the others, those that are yet to be started too. Every process calls it, but only the first is heard."""
    os.environ[VARIABLE] = run_dir
    if not is_first():
        return
    if num_ranks() > 1:
        broadcast(run_dir)
    elif (environment := launcher()) is not None:
        store = connect(environment)
        store.set(KEY, run_dir)
        STORES.append(store)


def is_first() -> bool:
    """Read from what launchers leave in the environment, since it is asked before a process group is there."""
    environment = launcher()
    if environment is not None:
        return environment.global_rank() == 0
    return all(os.environ.get(name, "0") == "0" for name in ("NODE_RANK", "LOCAL_RANK"))


def launcher() -> ClusterEnvironment | None:
    """torchrun or SLURM, where it has started several processes; None: Lightning starts them, or there is one."""
    kinds: tuple[type[ClusterEnvironment], ...] = (TorchElasticEnvironment, SLURMEnvironment)
    environment = next((kind() for kind in kinds if kind.detect()), None)
    return environment if environment is not None and environment.world_size() > 1 else None


def connect(environment: ClusterEnvironment) -> Store:
    """The key-value store through which the process group will be made."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = (environment.main_address, str(environment.main_port))
    store, *_ = next(rendezvous("env://", environment.global_rank(), environment.world_size()))
    return store


def broadcast(own: str) -> str:
    said = [own]
    torch.distributed.broadcast_object_list(said)
    return said[0]
