"""Children that may be killed, or see mounts of their own, without a Python to start for each."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000  # of unshare(2)
PRIVATE, REMOUNT, READ_ONLY = 0x40000 | 0x4000, 0x20, 0x1  # of mount(2)
UNABLE = 77


def forked(work: Callable[[], None]) -> int:
    """Start `work` in a child, which ends with 0, or with 1 and its traceback; gives its id."""
    child = os.fork()
    if child == 0:
        leave(work)
    return child


def leave(work: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        work()
        status = 0
    except NotImplementedError:
        status = UNABLE
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_small_tmpfs(claim: Callable[[Path], None], folder: Path) -> None:
    """`claim` holds of a folder of 1 MiB that only it can see; skips the test where nobody may mount."""

    def work() -> None:
        own_mounts()
        mount(b"tmpfs", folder, 0, b"size=1m")
        claim(folder)

    status = ended(forked(work))
    if status == UNABLE:
        pytest.skip("neither a user nor a mount namespace may be made here")
    assert status == 0


def own_mounts() -> None:
    user, group = os.getuid(), os.getgid()
    if libc().unshare(NEW_USER | NEW_MOUNTS) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    elif libc().unshare(NEW_MOUNTS) != 0:
        raise NotImplementedError
    mount(b"none", Path("/"), PRIVATE)


def mount(source: bytes, folder: Path, flags: int, options: bytes = b"") -> None:
    if libc().mount(source, os.fsencode(folder), b"tmpfs", flags, options) != 0:
        raise NotImplementedError


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
