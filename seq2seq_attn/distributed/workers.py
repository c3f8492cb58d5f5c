"""Worker processes that take tasks in order and give results in order, a bounded number at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar, final

from seq2seq_attn.distributed.ranks import end_with
from seq2seq_attn.errors import UserError

Result = TypeVar("Result")


@final
class Workers:
    """A context with `processes` worker processes; with one process, or none, this process does the work.

    The workers are started anew, not forked, so that they hold neither torch nor a lock of this process.

    Args:
        option: what sets their number, for an error message.
        start: what each worker does first.
    """

    def __init__(
        self, processes: int, *, option: str = "data.num_processes", start: Callable[[], None] | None = None
    ) -> None:
        self.processes, self.option, self.start = processes, option, start
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        if self.processes > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.processes, context, initializer=begin, initargs=(os.getpid(), self.start)
            )
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def terminate(self) -> None:
        """End the processes, so that the exit does not wait for their tasks.

        The executor's own `terminate_workers` is of Python 3.14; `_processes` is private, as of 3.11.
        """
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()

    def map(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield `function(*task)` in the order of the tasks; at most two tasks for each worker wait.

        Raises:
            UserError: if a worker was killed, as for want of memory.
        """
        if self._pool is None:
            yield from (function(*task) for task in tasks)
            return
        pending: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                with interrupts_held_back():  # the pool starts its workers when it gets tasks
                    pending.append(self._pool.submit(function, *task))
                if len(pending) > 2 * self.processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                f"a worker process ended, perhaps for want of memory; run the command again with {self.option}=1 (a "
                "script of your own needs `if __name__ == '__main__':` around what it calls)"
            ) from error


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Have an interrupt wait, and processes that are started meanwhile never see one, not even before `begin`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin(parent: int, start: Callable[[], None] | None) -> None:
    """Leave interrupts to the parent, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    if start is not None:
        start()


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
