"""Ranks of one run end together: a rank that was killed is named by the others, and none outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, final

import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from seq2seq_attn.errors import UserError
from seq2seq_attn.process import ENDING

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0  # to leave in order
LISTEN_SECONDS = 3.0  # for what the first rank says
MISTAKE = 2  # exit code, as of a command
KEY = "seq2seq_attn/mistake"
STOPPED = tuple(128 + signum for signum in (*ENDING, signal.SIGINT))


@contextmanager
def ending_together(trainer: Any) -> Iterator[None]:
    """Around all that ranks do together. What leaves it ends the processes that Lightning has started."""
    watch = Watch(trainer)
    if hasattr(trainer.strategy.launcher, "procs"):  # one device has none to look at
        watch.start()
    try:
        yield
    except SystemExit as left:
        if isinstance(left.__context__, KeyboardInterrupt):  # Lightning makes an exit code of 1 of it
            raise KeyboardInterrupt from left
        watch.pass_on(left.code)
        raise
    except BaseException as error:
        sentence = mistake(error)
        if sentence is None and trainer.world_size > 1:
            time.sleep(4 * POLL_SECONDS)  # a rank that is gone may be why, and then a watch says it
        elif sentence is not None and is_said(sentence):
            raise SystemExit(MISTAKE) from error
        raise
    finally:
        watch.end()


def mistake(error: BaseException) -> str | None:
    """Its sentence; None for what is no user's mistake."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UserError):
        cause = cause.__cause__
    return None if cause is None else str(cause)


def is_said(sentence: str) -> bool:
    """Whether the first rank ends with the same mistake, and says it for all.

    A rank that is alone with it waits a little for the first. Processes of a sweep go on, so each says its own.
    """
    sweeping = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    if sweeping or not dist.is_initialized():
        return False
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        store.set(KEY, sentence)
        return False
    try:
        store.wait([KEY], timedelta(seconds=LISTEN_SECONDS))
        return store.get(KEY).decode() == sentence
    except dist.DistError:
        return False


@final
class Watch(threading.Thread):
    """Looks at the ranks that this process has started; Lightning's own look would kill it without a word."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(daemon=True, name="watch of ranks")
        self.trainer = trainer
        self._ended = threading.Event()

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return getattr(self.trainer.strategy.launcher, "procs", [])

    def run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            take_over(self.processes)
            for rank, process in enumerate(self.processes, start=self.trainer.global_rank + 1):
                if process.poll():
                    self._end_after(rank, process)

    def pass_on(self, code: Any) -> None:
        """Send the signal that ends this rank to those that it has started, which may not have heard of it."""
        for signum in ENDING:
            if code == 128 + signum:
                for process in self.processes:
                    process.send_signal(signum)
            if self.trainer.global_rank > 0:  # it is on its way out, and the first passes the signal on
                signal.signal(signum, signal.SIG_IGN)

    def end(self) -> None:
        """Wait for the others, then do not wait any longer."""
        self._ended.set()
        latest = time.monotonic() + (GRACE_SECONDS if self.processes else 0)
        for process in self.processes:
            try:
                process.wait(max(0.0, latest - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    def _end_after(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        code = process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        code = code if code > 0 else 128 - code  # as a shell has it
        stopped = code in STOPPED
        if (process.returncode > 0 or stopped) and self._ended.wait(GRACE_SECONDS):
            return  # of itself, upon a signal or a mistake that all ranks see
        say(f"rank {rank} (process {process.pid}) {how}; the other ranks end too, continue with resume=auto")
        for other in self.processes:
            other.kill()
        os._exit(code if stopped else 1)


def take_over(processes: list[subprocess.Popen[bytes]]) -> None:
    """Give Lightning's observer nothing to look at."""
    for thread in threading.enumerate():
        if thread.name == "child-process-observer" and getattr(thread, "_child_processes", None) is processes:
            thread._child_processes = []  # type: ignore[attr-defined]


def watch_parent() -> None:
    """A rank that torchrun or rank 0 has started ends when that is gone, wherever it waits."""
    rank, torchrun = os.environ.get("LOCAL_RANK", "0"), "TORCHELASTIC_RUN_ID" in os.environ
    if rank != "0" or torchrun:
        who = ("torchrun" if torchrun else "rank 0", os.getppid(), rank)
        threading.Thread(target=end_after, args=who, daemon=True, name="watch of the parent").start()


def end_after(who: str, parent: int, rank: str) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    say(f"{who} (process {parent}) is gone; rank {rank} ends too, continue with resume=auto")
    os._exit(1)


def say(sentence: str) -> None:
    """Past the main thread, which may hold the streams."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{sentence}\n".encode())
