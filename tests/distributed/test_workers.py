"""Worker processes: results in the order of the tasks, and interrupts that are the parent's alone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from seq2seq_attn.distributed.workers import Workers


def describe(number: int) -> tuple[int, int, bool]:
    """Return the number, the process, and whether it lets no interrupt through."""
    return number, os.getpid(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_never_sees_an_interrupt_and_the_parent_does() -> None:
    with Workers(2) as workers:
        found = list(workers.map(describe, [(number,) for number in range(7)]))
    assert [number for number, _, _ in found] == list(range(7))
    assert os.getpid() not in {process for _, process, _ in found}
    assert all(held_back for _, _, held_back in found)  # from before its first line, so that no traceback is its own
    assert not describe(0)[2]


def test_one_process_does_the_work_itself() -> None:
    with Workers(1) as workers:
        assert list(workers.map(describe, [(3,)])) == [(3, os.getpid(), False)]


def write_late(file: Path, seconds: float) -> None:
    time.sleep(seconds)
    file.touch()


@pytest.mark.slow
def test_what_terminated_workers_do_is_not_waited_for(tmp_path: Path) -> None:
    with Workers(2) as workers:
        next(workers.map(write_late, [(tmp_path / str(number), 5.0 * (number > 0)) for number in range(7)]))
        workers.terminate()
    assert [file.name for file in tmp_path.iterdir()] == ["0"]
