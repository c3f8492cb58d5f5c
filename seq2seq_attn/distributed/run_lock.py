"""One process at a time in a run folder: a lock that the system takes back however its holder ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from seq2seq_attn.errors import UserError

LOCK = "run.lock"
HELD: set[Path] = set()  # by this process


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; a process that holds it already goes on.

    A file system without locks, or a folder that cannot be written, which is said later, stops nothing.

    Raises:
        UserError: if another process holds it.
    """
    key = folder.resolve()
    if key in HELD:
        yield
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock(folder))
        except BlockingIOError as error:
            raise UserError(
                f"another process is at work in {folder}; wait for it, or end it, or give another folder"
            ) from error
        except OSError:
            pass
        HELD.add(key)
        stack.callback(HELD.discard, key)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder."""
    try:
        lock(folder).close()
    except BlockingIOError:
        return True
    except OSError:  # no folder, or no locks
        pass
    return False


def lock(folder: Path) -> IO[str]:
    """The open file, which has the lock until it is closed."""
    file = (folder / LOCK).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
