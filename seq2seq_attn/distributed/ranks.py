"""Ranks of one run end together: Lightning ends them all if one fails, and a rank whose parent is gone ends too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seq2seq_attn.errors import UserError, one_line, sentence_of
from seq2seq_attn.process import ENDING

RANK_0 = "SEQ2SEQ_ATTN_RANK_0"  # environment variable with the number of the process that starts the other ranks
POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0  # for a process to leave in order
LISTEN_SECONDS = 3.0  # for the first rank to print an error of all ranks and end the others


@contextmanager
def ending_together(trainer: Any) -> Iterator[None]:
    """Surround what ranks do together; when rank 0 leaves it, the processes that Lightning started for it end.

    An error of all ranks is printed by the first only, since the others wait before they raise theirs.

    Raises:
        UserError: on rank 0, if another rank was killed, or another node has ended.
    """
    done = False
    try:
        yield
        done = True
    except SystemExit as left:
        if isinstance(left.__context__, KeyboardInterrupt):  # Lightning turns it into exit code 1
            raise KeyboardInterrupt from left
        for signum in ENDING if trainer.global_rank > 0 else ():
            signal.signal(signum, signal.SIG_IGN)  # rank 0 asks once more
        raise
    except Exception as error:
        if trainer.global_rank > 0:
            time.sleep(LISTEN_SECONDS)
        elif sentence_of(error) is None and (sentence := sentence_of_ended(started(trainer))):
            raise UserError(sentence) from error
        elif trainer.num_nodes > 1 and is_lost_connection(error):
            raise UserError(
                f"another node has ended ({one_line(error)[:200]}); start all of them again with resume=auto"
            ) from error
        raise
    finally:
        end(started(trainer), done)


def started(trainer: Any) -> list[subprocess.Popen[bytes]]:
    """Return the processes that Lightning has started from this one."""
    return getattr(trainer.strategy.launcher, "procs", [])


def sentence_of_ended(processes: list[subprocess.Popen[bytes]]) -> str | None:
    """Return the sentence for the rank that has ended first, or soon will: a connection that it closed is no cause."""
    latest = time.monotonic() + (2 * POLL_SECONDS if processes else 0)
    while time.monotonic() < latest:
        for rank, process in enumerate(processes, start=1):
            if code := process.poll():
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"rank {rank} (process {process.pid}) {how}; the other ranks end too, continue with resume=auto"
        time.sleep(POLL_SECONDS / 10)
    return None


def is_lost_connection(error: Exception) -> bool:
    """Return whether a collective has failed, as when a process that takes part in it is gone."""
    kinds = {kind.__name__ for kind in type(error).__mro__}  # without an import of torch
    return "DistError" in kinds or ("RuntimeError" in kinds and "gloo" in str(error))


def end(processes: list[subprocess.Popen[bytes]], done: bool) -> None:
    """Wait for processes that are done too; ask others to end; kill those that do not."""
    ending = list(processes)
    processes.clear()  # or Lightning's observer kills this process, because another one fails as it does
    latest = time.monotonic() + GRACE_SECONDS
    for process in ending if not done else ():
        process.terminate()
    for process in ending:
        try:
            process.wait(max(0.0, latest - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def watch_parent() -> None:
    """End this rank when torchrun or rank 0, which has started it, is gone, wherever it waits.

    Rank 0 leaves its number to those that it will start: it may be gone before they have come this far.
    """
    rank, torchrun = os.environ.get("LOCAL_RANK", "0"), "TORCHELASTIC_RUN_ID" in os.environ
    if rank == "0":
        os.environ[RANK_0] = str(os.getpid())
    if rank != "0" or torchrun:
        first = int(os.environ.get(RANK_0, os.getppid()))
        parent = os.getppid() if torchrun or is_alive(first) else first
        who = ("torchrun" if torchrun else "rank 0", parent, rank)
        threading.Thread(target=end_after, args=who, daemon=True, name="watch of the parent").start()


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def end_with(parent: int) -> None:
    """End this process when its parent, of this number, is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch of the parent").start()


def end_after(who: str, parent: int, rank: str) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    sentence = f"{who} (process {parent}) is gone; rank {rank} ends too, continue with resume=auto\n"
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, sentence.encode())  # the main thread may hold the stream
    os._exit(1)
