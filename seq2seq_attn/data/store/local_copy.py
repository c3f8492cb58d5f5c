"""Copies of prepared folders on a disk of the node, made once and found again by the name of the folder."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

from filelock import FileLock

from seq2seq_attn.data.store.progress import progress
from seq2seq_attn.errors import UserError

SUFFIXES = (".arrow", ".npy", ".json")  # of what is read later; not locks, parts, and cuts of one batch size
COPYING = ".copying"
LARGE = 1 << 28  # bytes whose copy has a progress bar

log = logging.getLogger(__name__)


def local_copy(folder: Path, copy_to: Path) -> Path:
    """Return the copy of `folder`, whose name is a digest of its content; copy the files that are missing.

    A file is complete or has another name, and none is replaced or deleted. Other processes of the node wait.

    Raises:
        UserError: if the disk is too small or cannot be written, or a file of another size is there.
    """
    local = copy_to / folder.parent.name / folder.name
    files = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.suffix in SUFFIXES]
    try:
        if not all(is_copied(folder / file, local / file) for file in files):
            local.mkdir(parents=True, exist_ok=True)
            with FileLock(local.with_name(f"{local.name}.lock")):
                copy_files(folder, local, [file for file in files if not is_copied(folder / file, local / file)])
    except OSError as error:
        raise UserError(
            f"data.copy_to={copy_to} cannot hold the prepared data ({error.strerror}); make room, or give another one"
        ) from error
    return local


def is_copied(file: Path, copy: Path) -> bool:
    """Return whether the copy is there.

    Raises:
        UserError: if something else is.
    """
    if not os.path.lexists(copy):
        return False
    if copy.is_file() and copy.stat().st_size == file.stat().st_size:
        return True
    raise UserError(
        f"{copy} is not a copy of {file}, whose size is {file.stat().st_size:,} bytes; move it, or give another "
        "data.copy_to"
    )


def copy_files(folder: Path, local: Path, files: list[Path]) -> None:
    """Copy these files, each in one step, in place of what is left of a copy that was killed."""
    for file in files:
        (local / f"{file}{COPYING}").unlink(missing_ok=True)
    sizes = [(folder / file).stat().st_size for file in files]
    free = shutil.disk_usage(local).free
    if sum(sizes) > free:
        raise OSError(errno.ENOSPC, f"{sum(sizes):,} bytes for {free:,} that are free")
    done = 0
    with progress(f"Copying to {local}", sum(sizes), shown=sum(sizes) >= LARGE) as advance:
        for file, size in zip(files, sizes, strict=True):
            copying = local / f"{file}{COPYING}"
            copying.parent.mkdir(exist_ok=True)
            try:
                shutil.copyfile(folder / file, copying)
            except OSError:
                copying.unlink(missing_ok=True)  # the disk may be full of it
                raise
            if copying.stat().st_size != size:
                raise UserError(f"{folder / file} changed while it was copied; run the command again")
            os.replace(copying, local / file)
            done += size
            advance(done)
