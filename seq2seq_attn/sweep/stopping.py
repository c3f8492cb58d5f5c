"""A sweep that is told to end lets the jobs in its launcher's workers end first, and save."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from seq2seq_attn.distributed.run_lock import is_locked
from seq2seq_attn.process import ENDING, drop_closed_terminal
from seq2seq_attn.sweep.job import RUNNING, STOPPED, WAITING, Job

POLL_SECONDS = 0.1


@contextmanager
def stopping_jobs(jobs: Sequence[Job]) -> Iterator[None]:
    """On a signal that ends the command, end the jobs that its child processes are at work on, and begin no other.

    A launcher kills its workers when its command is interrupted; until the handler returns, nothing interrupts it. A
    second signal has the effect that it has without this.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {signum: signal.getsignal(signum) for signum in (*ENDING, signal.SIGINT)}
    handlers = {signum: handler for signum, handler in handlers.items() if callable(handler)}

    def restore() -> None:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)

    def stop(signum: int, frame: FrameType | None) -> None:
        restore()
        drop_closed_terminal()
        end_jobs(jobs)
        handlers[signum](signum, frame)

    for signum in handlers:
        signal.signal(signum, stop)
    try:
        yield
    finally:
        restore()


def end_jobs(jobs: Sequence[Job]) -> None:
    """Send SIGTERM to the child processes that are at work on a job, and wait for the jobs to end."""
    children = {child.pid for child in multiprocessing.active_children()}
    ended: set[int] = set()
    while at_work := [job for job in jobs if job.record.get("process") in children and is_locked(job.folder)]:
        for job in jobs:
            if job.status == WAITING and not is_locked(job.folder):
                job.write(STOPPED)
        for job in at_work:
            if job.number not in ended and job.status == RUNNING:
                ended.add(job.number)
                os.kill(job.record["process"], signal.SIGTERM)
                print(f"job {job.number} is told to save and to end; resume=auto continues it", file=sys.stderr)
        time.sleep(POLL_SECONDS)
