"""Folders that are made once for the whole test run, by the first process that needs one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name, filled by `make` unless a process of this test run has filled it.

    Tests read it; one that writes takes a copy.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # which the workers share
    folder, made = root / "shared" / name, root / "shared" / f"{name}.made"
    folder.parent.mkdir(exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
            folder.mkdir()
            make(folder)
            made.touch()
        fcntl.flock(lock, fcntl.LOCK_UN)  # also for children that `make` has left with the open file
    return folder
