"""Files that are flushed to the disk, replaced in one step, or identified by a digest."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from seq2seq_attn.errors import UNWRITABLE, UserError

log = logging.getLogger(__name__)


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Yield a stream that becomes `file` in one step when all is written.

    Raises:
        UserError: if the folder cannot be made or written to.
    """
    temporary = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = temporary.open("xb")  # with the permissions of any new file, unlike those of tempfile
    except OSError as error:
        raise unwritable(file.parent, error) from error
    try:
        with opened as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a file of the right name could be empty after a power failure
        os.replace(temporary, file)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            is_of_file = error.filename is None and error.errno in UNWRITABLE
            if is_of_file or str(error.filename) == str(temporary):
                error.filename = str(file)  # for the sentence
        raise


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield a new folder whose files become those of `folder`, which has none, when all are written.

    Raises:
        UserError: if there is no room for them, or the folder cannot be written.
    """
    target = folder.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target if target.exists() else target.parent) as beside:
            made = Path(beside) / target.name
            made.mkdir()
            yield made
            target.mkdir(exist_ok=True)
            for path in made.iterdir():
                path.rename(target / path.name)
    except OSError as error:
        is_temporary = isinstance(error, PermissionError) and f"/.{target.name}." in str(error.filename)
        if error.errno not in UNWRITABLE and not is_temporary:
            raise
        room = "" if is_temporary else "make room, or "
        raise UserError(f"{folder} cannot be written ({error.strerror}); {room}give another folder") from error


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock that all processes with this folder know; the folder is made, and a wait is logged.

    Raises:
        UserError: if the folder cannot be made or written to.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            log.info(f"Another process prepares {file.parent}; this one waits for it")
            lock.acquire()
    except OSError as error:
        raise unwritable(file.parent, error) from error
    try:
        yield
    finally:
        lock.release()


def unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"the folder {folder} cannot be written ({error.strerror}); make it writable, or give another one: "
        "paths.cache_dir for a cache, hydra.run.dir for a run"
    )


def regular(file: Path) -> Path:
    """Return a file that can be read to its end.

    Raises:
        OSError: for a pipe or a device, which a stranger's folder may contain.
    """
    if file.exists() and not file.is_file():
        raise OSError(f"{file} is not a regular file")
    return file


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file; nothing if there is none, or the file is incomplete."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(regular(file).read_text("utf-8"))
        if isinstance(content, dict):
            return content
    return {}


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_writable(file: Path, way_out: str) -> None:
    """Refuse a file whose folder cannot be made or written to, before the work whose result it will hold.

    Raises:
        UserError: naming the folder.
    """
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{file} cannot be written, since nothing can be written in {folder}; {way_out}")


def check_is_ours(file: Path, mark: str, what: str) -> None:
    """Refuse to replace the file that --output names unless it holds the mark of what this program writes there.

    Raises:
        UserError: if it is there and is not `what`, or its folder cannot be written to.
    """
    check_writable(file, "give another --output")
    if os.path.lexists(file) and not (file.is_file() and mark.encode() in file.read_bytes()):
        raise UserError(f"{file} already exists and is not {what}; give another --output")


def check_beside(file: Path, mark: re.Pattern[str], output: Path) -> None:
    """Refuse to write a file that is named after the one that was asked for and is there, but not of this program.

    Args:
        mark: matches in the first mebibyte of what the program writes there.
        output: what was asked for.

    Raises:
        UserError: if it does not match in the file.
    """
    if file.exists():
        with file.open("rb") as stream:
            text = stream.read(1 << 20).decode(errors="replace")
        if not mark.search(text):
            raise UserError(f"{file} would be written beside {output} and holds something else; give another --output")
