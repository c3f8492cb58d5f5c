"""Files that are replaced in one step, and the SHA-256 beside a file, as `sha256sum -c` reads it."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from seq2seq_attn.errors import UserError

UNREADABLE = "is not a readable checkpoint (truncated, damaged or of another program)"


def damage(file: Path) -> str | None:
    """What is wrong with the file, as a sentence goes on after its name; None: it is whole."""
    whole = file.resolve()
    try:
        if sum_of(whole).exists():
            said = f"is damaged: its SHA-256 is not the one in {sum_of(whole).name}"
            return None if noted(whole) == digest_of(whole) else said
        with zipfile.ZipFile(whole) as records:
            return None if records.testzip() is None else UNREADABLE
    except PermissionError as error:
        return f"cannot be read ({error.strerror})"
    except Exception:  # a broken archive fails in many ways
        return UNREADABLE


def note(file: Path, digest: str) -> None:
    """Its sum, not yet under its name."""
    part = part_of(sum_of(file))
    part.write_text(f"{digest}  {file.name}\n", encoding="utf-8")
    sync(part)


def install_sum(file: Path) -> None:
    part_of(sum_of(file)).replace(sum_of(file))
    sync(file.parent)


def part_of(file: Path) -> Path:
    """In the same folder, or a rename would be a copy."""
    return file.with_name(f"{file.name}.part")


def sum_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def noted(file: Path) -> str | None:
    """The sum beside the file, if there is one."""
    if not sum_of(file).exists():
        return None
    return sum_of(file).read_text(encoding="utf-8", errors="replace").partition(" ")[0]


def digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """A file's content, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream that becomes `file` in one step when all is written.

    Raises:
        UserError: if the folder cannot be made or written to.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    except OSError as error:
        raise UserError(
            f"the cache folder {file.parent} cannot be written ({error.strerror}); give another one as paths.cache_dir"
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
