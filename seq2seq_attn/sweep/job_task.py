"""The task of a sweep's job, with its record and its output file, run in any process that a launcher chooses."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.ranks import end_with
from seq2seq_attn.distributed.run_lock import only_process_in
from seq2seq_attn.errors import UserError, causes, one_line, sentence_of
from seq2seq_attn.process import keep_freed_memory, leave, leave_on_signals
from seq2seq_attn.sweep.job import COMPLETE, FAILED, RUNNING, STOPPED, WAITING, Job

OUTPUT, TRACEBACK = "output.txt", "error.txt"


@final
class JobTask:
    """A task that records its failure instead of raising it: Hydra raises the first failure of a sweep alone.

    It is made in the command's process and pickled into those of launchers, with the command line.

    Args:
        fixed: overrides that all jobs share, which no line repeats.
    """

    def __init__(self, task: Callable[[DictConfig], Any], fixed: Collection[str] = ()) -> None:
        self.task, self.fixed = task, set(fixed)
        self.arguments, self.process = list(sys.argv), os.getpid()

    def __call__(self, config: DictConfig) -> None:
        hydra, began = HydraConfig.get(), time.monotonic()
        folder = Path(hydra.runtime.output_dir)
        job = Job(int(folder.name), tuple(hydra.overrides.task), folder)  # launchers count from the first that is left

        before = job.record.get("minutes", 0.0)  # of earlier attempts

        def record(status: str, **entries: Any) -> None:
            if is_first():
                job.write(status, minutes=before + (time.monotonic() - began) / 60, process=os.getpid(), **entries)

        if job.status in (STOPPED, COMPLETE):  # complete: a cluster has begun it twice
            return
        with ExitStack() as around:
            if os.getpid() != self.process:
                around.enter_context(output_into(job.folder / OUTPUT))
                become_the_command(self.arguments, self.process)
            if is_first():
                try:
                    around.enter_context(only_process_in(job.folder))
                except UserError as refused:
                    if job.status == WAITING:  # else the record is that of the process that holds the lock
                        record(STOPPED, why=str(refused))
                    print(f"job {job.number}: {refused}", file=sys.stderr, flush=True)
                    return
            try:
                record(RUNNING)
                self.task(config)
            except Exception as error:
                record(FAILED, why=reason(error, job.folder))
                if not is_first():  # its exit code tells the launcher, which ends the others
                    raise
            except BaseException:  # told to end; the minutes count when it resumes
                record(RUNNING)
                raise
            else:
                record(COMPLETE)
                if is_first():
                    (folder / TRACEBACK).unlink(missing_ok=True)  # of an earlier attempt
        if is_first():
            score, minutes = job.score, f"{job.record['minutes']:.1f} min"
            figures = minutes if score is None else f"{score[0]} {score[1]:.1f}, {minutes}"
            how = figures if job.status == COMPLETE else f"failed: {job.record['why']}"
            own = [override for override in job.overrides if override not in self.fixed]
            print(f"job {' '.join([str(job.number), *own])}: {how}", flush=True)


def reason(error: Exception, folder: Path) -> str:
    """Return the sentence of a user error; of a bug the last line of its traceback, which is written to a file."""
    if sentence := sentence_of(error):
        return sentence
    trace = "".join(traceback.format_exception(error))
    (folder / TRACEBACK).write_text(trace, "utf-8")
    print(trace, file=sys.stderr, flush=True)
    *_, first = causes(error)
    return f"{type(first).__name__}: {one_line(first)} (see {folder / TRACEBACK})"


def become_the_command(arguments: list[str], process: int) -> None:
    """Do for a launcher's worker what `main` does for its process, and set what Lightning starts other ranks by.

    A child of the command's process ends with it. What a terminal sends to all processes is left to the command, which
    tells its children to end (`stopping_jobs`), and of several SIGTERM the first counts: another would interrupt what
    is saved.
    """
    keep_freed_memory()
    if os.getppid() == process:
        if signal.getsignal(signal.SIGTERM) not in (leave_once, signal.SIG_IGN):  # its first job
            end_with(process)
        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, leave_once)
    leave_on_signals()
    sys.argv = arguments
    sys.modules["__main__"].__spec__ = None  # a worker is a module, `python -m ...`


def leave_once(signum: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signum, signal.SIG_IGN)
    leave(signum, frame)


@contextmanager
def output_into(file: Path) -> Iterator[None]:
    """Send what this process and those that it starts print to a file: jobs at once would overwrite other's bars."""
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with file.open("ab") as target:
        for descriptor in (1, 2):
            os.dup2(target.fileno(), descriptor)
    try:
        yield
    finally:
        for stream, descriptor, before in zip((sys.stdout, sys.stderr), (1, 2), kept, strict=True):
            stream.flush()
            os.dup2(before, descriptor)
            os.close(before)
