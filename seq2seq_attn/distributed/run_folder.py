"""One run folder for all processes of a run: the first one's, whichever way they were started."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from lightning_fabric.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from torch.distributed import DistError, Store, rendezvous

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.process import ENDING

log = logging.getLogger(__name__)

VARIABLE, KEY = "SEQ2SEQ_ATTN_RUN_DIR", "seq2seq_attn/run_dir"
STORES: list[Store] = []  # the first process answers the others as long as its store is referenced
LONGEST_WAIT = timedelta(days=1)  # for a preparation, whose processes may also die; torch's own limit is half an hour


@contextmanager
def shared_run_dir(run_dir: str) -> Iterator[str]:
    """Give `first_run_dir`, and remove at the end what `announce` leaves in the environment."""
    try:
        yield first_run_dir(run_dir)
    finally:
        os.environ.pop(VARIABLE, None)


def first_run_dir(run_dir: str) -> str:
    """Return the folder of the first process. Others wait until it announces it, and find the caches filled.

    Args:
        run_dir: the folder of this process. Hydra names folders by the second, so the other processes make none:
            theirs is the working directory, unless the command line names one.

    Raises:
        UserError: in a process that nothing connects to the first one.
    """
    if is_first():
        return run_dir
    if (environment := launcher()) is not None:
        with meeting(environment):
            return connect(environment).get(KEY).decode()
    if VARIABLE in os.environ:  # started by the first process
        return os.environ[VARIABLE]
    if Path(run_dir).resolve() != Path.cwd():
        return run_dir
    raise UserError(
        "a node that is started by hand cannot know the run folder of the first; give all of them the same one with "
        "hydra.run.dir=..., or start them with torchrun or srun"
    )


def announce(run_dir: str) -> None:
    """Tell the other processes the folder of the first, those that are started later too; every process calls it.

    Processes of one launcher then wait for each other, since a node may still copy the data (`data.copy_to`) when
    another is ready, and the process group, which comes next, does not wait as long.
    """
    os.environ[VARIABLE] = run_dir
    if (environment := launcher()) is None:
        return
    others = environment.world_size() - 1
    if is_first():
        by_slurm = " (srun starts them)" if isinstance(environment, SLURMEnvironment) else ""
        log.info(f"Waiting for {others} other process{'es' * (others > 1)}{by_slurm}")
    with meeting(environment):
        store = connect(environment)
        if is_first():
            store.set(KEY, run_dir)
            STORES.append(store)
        store.set(f"{KEY}/{environment.global_rank()}", "ready")
        store.wait([f"{KEY}/{rank}" for rank in range(environment.world_size())])


def launcher() -> ClusterEnvironment | None:
    """Return torchrun or SLURM, if it has started several processes; None: Lightning starts them, or there is one.

    Raises:
        UserError: for variables of srun that Lightning refuses.
    """
    kinds: tuple[type[ClusterEnvironment], ...] = (TorchElasticEnvironment, SLURMEnvironment)
    try:
        environment = next((kind() for kind in kinds if kind.detect()), None)
    except RuntimeError as error:
        raise UserError(f"srun cannot start this run: {one_line(error)}") from error
    return environment if environment is not None and environment.world_size() > 1 else None


@contextmanager
def one_slurm_task() -> Iterator[None]:
    """Let Lightning start the processes where Slurm has started one, which it would take for all of them.

    Lightning, as of 2.6.6, starts the processes of a job that has this name.
    """
    name = os.environ.get("SLURM_JOB_NAME")
    is_one = os.environ.get("SLURM_NTASKS") == "1"
    if is_one:
        os.environ["SLURM_JOB_NAME"] = "interactive"
    try:
        yield
    finally:
        if is_one:
            os.environ.pop("SLURM_JOB_NAME")
            os.environ.update({} if name is None else {"SLURM_JOB_NAME": name})


@contextmanager
def meeting(environment: ClusterEnvironment) -> Iterator[None]:
    """Surround what all processes do together through the store, which answers no signal while it waits.

    A signal ends this process at once; there is nothing to save yet.

    Raises:
        UserError: if others do not come, or are gone.
    """
    try:
        with ended_by(signal.SIGINT, *ENDING):
            yield
    except DistError as error:
        raise UserError(
            f"process {environment.global_rank()} of {environment.world_size()} could not connect to the others "
            f"({one_line(error)[:200]}); start all of them again with resume=auto, on Slurm by srun"
        ) from error


@contextmanager
def ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Have signals end this process without running any more of its code; one that is ignored stays so."""
    before = {signum: signal.getsignal(signum) for signum in signals}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def connect(environment: ClusterEnvironment) -> Store:
    """Return the key-value store through which the process group will be made."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = (environment.main_address, str(environment.main_port))
    rank, world_size = environment.global_rank(), environment.world_size()
    store, *_ = next(rendezvous("env://", rank, world_size, timeout=LONGEST_WAIT))
    return store
