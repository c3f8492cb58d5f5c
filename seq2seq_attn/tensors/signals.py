"""Signals that ask a process to end, and leaving in order with the exit code that a shell gives to them."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)


def leave_on_signals() -> None:
    """Let the task close what it holds and end its processes; a signal that is ignored, as by nohup, stays so."""
    for signum in ENDING:
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, leave)


def leave(signum: int, frame: FrameType | None) -> NoReturn:
    """A handler."""
    drop_closed_terminal()
    raise SystemExit(128 + signum)


def drop_closed_terminal() -> None:
    """Send to /dev/null what is yet to be printed on a terminal that was closed: it would fail."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
