"""What surrounds the task of a sweep's job, in whichever process a launcher runs it."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seq2seq_attn.distributed.rank_overrides import is_first_rank
from seq2seq_attn.distributed.run_lock import locked
from seq2seq_attn.errors import causes, one_line, sentence_of
from seq2seq_attn.process import keep_freed_memory, leave_on_signals
from seq2seq_attn.sweep.job import COMPLETE, FAILED, RUNNING, write_record

OUTPUT, TRACEBACK = "output.txt", "error.txt"


@final
class JobTask:
    """A failure is put on record and stays within the job: launchers and sweepers see a job that has ended.

    It is made in the process of the command and pickled to those of launchers, so it takes the command line along.
    """

    def __init__(self, task: Callable[[DictConfig], Any]) -> None:
        self.task = task
        self.arguments, self.process = list(sys.argv), os.getpid()

    def __call__(self, config: DictConfig) -> None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        first, overrides = is_first_rank(os.environ), list(HydraConfig.get().overrides.task)
        began = time.monotonic()

        def record(status: str, **entries: Any) -> None:
            if first:
                minutes = (time.monotonic() - began) / 60
                told = {"overrides": overrides, "status": status, "minutes": minutes, "process": os.getpid()}
                write_record(folder, **told, **entries)

        with ExitStack() as around:
            if os.getpid() != self.process:
                around.enter_context(output_into(folder / OUTPUT))
                around.enter_context(as_the_command(self.arguments))
            if first:
                around.enter_context(locked(folder))
            record(RUNNING)
            try:
                self.task(config)
            except Exception as error:
                record(FAILED, why=why(error, folder))
            else:
                record(COMPLETE)


def why(error: Exception, folder: Path) -> str:
    """The sentence of a mistake, or of a bug the last line of its traceback, which goes into a file."""
    sentence = sentence_of(error)
    if sentence is not None:
        return sentence
    trace = "".join(traceback.format_exception(error))
    (folder / TRACEBACK).write_text(trace, "utf-8")
    print(trace, file=sys.stderr, flush=True)
    *_, first = causes(error)
    return f"{type(first).__name__}: {one_line(str(first))} (see {folder / TRACEBACK})"


@contextmanager
def as_the_command(arguments: list[str]) -> Iterator[None]:
    """What main() does for its process, and what Lightning reads to start the other ranks of a job."""
    main, left, spec = sys.modules["__main__"], sys.argv, sys.modules["__main__"].__spec__
    keep_freed_memory()
    leave_on_signals()
    sys.argv, main.__spec__ = arguments, None  # a launcher's worker is a module: `python -m ...`
    try:
        yield
    finally:
        sys.argv, main.__spec__ = left, spec


@contextmanager
def output_into(file: Path) -> Iterator[None]:
    """All that this process and those that it starts say: several jobs at once would write over each other's bars."""
    said = [sys.stdout, sys.stderr]
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as target:
        for stream in said:
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(target.fileno(), descriptor)
    try:
        yield
    finally:
        for stream in said:
            stream.flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
