"""Checkpoint files on disk: whole or not there, each with its SHA-256 beside it, as `sha256sum -c` reads it.

At every moment of a write the name stands for a whole file, the old one or the new one. Its sum is taken away before
and put back after, so that none ever stands beside a file that it is not of: killed between, a good file has no sum,
and the CRC-32 of its records is checked instead.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, final

import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import damage, digest_of, install_sum, note, noted, part_of, sum_of, sync

log = logging.getLogger(__name__)

BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"  # previous: the one that last has replaced


def write_checkpoint(checkpoint: dict[str, Any], file: Path, *, before: Path | None = None) -> None:
    """Replace `file`, or leave it as it was.

    Args:
        before: where the file that is replaced is kept; None: nowhere.

    Raises:
        UserError: if there is no room, or no leave to write.
    """
    part, size = part_of(file), tensor_bytes(checkpoint)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        check_room(file, size)
        with part.open("wb") as stream:
            sink = Sink(stream)
            torch.save(checkpoint, sink)  # type: ignore[arg-type]  # all it does is write
            size = sink.size
            sink.finish()
        digests = {file: sink.digest.hexdigest()}
        if before is not None and file.exists():
            digests[before] = keep(file, before)
        for name, digest in digests.items():
            note(name, digest)  # before the first rename, after which nothing more needs room
        for name in digests:
            install(name)
    except OSError as error:
        discard(file, before)
        if error.errno == errno.ENOSPC:
            raise no_room(file, size) from error
        raise unwritable(file, error) from error
    except BaseException:
        discard(file, before)
        raise


@final
class Sink:
    """What torch writes into. It keeps a fault of the disk to itself, which torch would answer with one of its own.

    Attributes:
        size: of all that was to be written, also after a fault.
    """

    def __init__(self, stream: BufferedIOBase) -> None:
        self.stream, self.digest = stream, hashlib.sha256()
        self.size = 0
        self._fault: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        self.size += len(data)
        if self._fault is None:
            self.digest.update(data)
            try:
                self.stream.write(data)
            except OSError as error:
                self._fault = error
        return len(data)

    def flush(self) -> None:
        """Left to `finish`."""

    def finish(self) -> None:
        """All of it is on the disk.

        Raises:
            OSError: else.
        """
        if self._fault is not None:
            raise self._fault
        self.stream.flush()
        os.fsync(self.stream.fileno())


def tensor_bytes(checkpoint: dict[str, Any]) -> int:
    """Nearly the size of its file; what tensors share is written once."""
    sizes: dict[int, int] = {}
    left: list[Any] = [checkpoint]
    while left:
        node = left.pop()
        if isinstance(node, Tensor):
            storage = node.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(node, dict):
            left += node.values()
        elif isinstance(node, list | tuple):
            left += node
    return sum(sizes.values())


def check_room(file: Path, size: int) -> None:
    """Refuse before the last bytes are taken, which logs and tables need; a file system that tells nothing passes."""
    usage = shutil.disk_usage(file.parent)
    if usage.total and usage.free < size:
        raise no_room(file, size)


def keep(file: Path, before: Path) -> str:
    """A second name for the file that is going to be replaced, not yet the final one; gives its sum."""
    whole = file.resolve()  # Lightning's save_last=link
    part = part_of(before)
    part.unlink(missing_ok=True)
    try:
        os.link(whole, part)
    except OSError:  # not every file system has links
        shutil.copyfile(whole, part)
        sync(part)
    return noted(whole) or digest_of(whole)


def install(file: Path) -> None:
    """Rename what is ready; on the disk too, no step comes before the one above it."""
    sum_of(file).unlink(missing_ok=True)
    sync(file.parent)
    part_of(file).replace(file)
    sync(file.parent)
    install_sum(file)


def discard(*files: Path | None) -> None:
    """What is not installed of them."""
    with suppress(OSError):  # a read-only folder
        for file in filter(None, files):
            part_of(file).unlink(missing_ok=True)
            part_of(sum_of(file)).unlink(missing_ok=True)


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a folder, to continue from; None where there is none at all.

    A damaged one is named in a warning, and the one before it is taken.

    Raises:
        UserError: if all of them are damaged.
    """
    others = sorted(folder.glob("*.ckpt"), key=lambda file: file.lstat().st_mtime_ns, reverse=True)
    ordered = dict.fromkeys([folder / LAST, folder / PREVIOUS, *others])
    damaged: dict[Path, str] = {}
    for file in filter(Path.is_file, ordered):
        reason = damage(file)
        if reason is None:
            for bad, why in damaged.items():
                warn(f"{bad} {why}; {file.name} is taken instead")
            return file
        damaged[file] = reason
    if damaged:
        names = ", ".join(file.name for file in damaged)
        raise UserError(
            f"{folder} holds no whole checkpoint ({names}: all damaged); give a new hydra.run.dir to start again"
        )
    return None


@rank_zero_only
def warn(sentence: str) -> None:
    log.warning(sentence)


@rank_zero_only
def prepare_folder(folder: Path) -> None:
    """Make the folder, and clear away what a run that was killed left half done.

    Raises:
        UserError: if it cannot be written: better now than after the first epoch.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part_of(folder / LAST).touch()
        for part in folder.glob("*.part"):
            part.unlink()
        for noting in folder.glob("*.ckpt.sha256"):
            if not noting.with_suffix("").exists():
                noting.unlink()
        for file in folder.glob("*.ckpt"):
            if file.is_file() and not sum_of(file.resolve()).exists() and damage(file) is None:
                note(file.resolve(), digest_of(file))
                install_sum(file.resolve())
    except OSError as error:
        raise unwritable(folder, error) from error


def remove_checkpoint(file: Path) -> None:
    """The file first: a sum without a file is swept, a file without a sum would stay."""
    file.unlink(missing_ok=True)
    sum_of(file).unlink(missing_ok=True)


def no_room(file: Path, size: int) -> UserError:
    free = shutil.disk_usage(file.parent).free
    return UserError(
        f"{file} needs {size / 1e6:,.2f} MB and {free / 1e6:,.2f} MB are free; the checkpoints there stand as they "
        "were, so make room and continue with resume=auto"
    )


def unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path} cannot be written ({error.strerror}); the checkpoints there stand as they were, so make it writable "
        "and continue with resume=auto, or give another hydra.run.dir"
    )
