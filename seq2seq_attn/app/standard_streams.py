"""Standard input and output as the shell leaves them: open, closed (`<&-`, `>&-`) or on a full device."""

from __future__ import annotations

import os
import sys
from typing import Any


def open_closed_streams() -> None:
    """Open what the shell closed on the null device, or the next file gets its number, and what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def is_closed(stream: Any) -> bool:
    """Whether the shell closed a standard stream."""
    return stream is None or getattr(stream, "name", None) == os.devnull


def drop_unwritten() -> None:
    """Discard what standard output refuses: the interpreter writes it once more on its way out, which must not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
