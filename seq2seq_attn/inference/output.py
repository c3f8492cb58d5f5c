"""Files that a command writes line by line: whole under their name, or not there."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, final

from seq2seq_attn.errors import UserError

DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
NUMBERS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}


@contextmanager
def written(option: str, path: str | None, standard: Any = None) -> Iterator[Any]:
    """A byte stream, packed if the name ends in gz; for None the standard stream, left open.

    A regular file is written beside and renamed at the end, with the permissions of the file that it replaces: an
    error or an interrupt leaves that file as it was. Pipes, devices and open descriptors are written directly.
    """
    if path is None:
        yield standard
        return
    with sentence_for(option, path):
        raw, part, final_name = open_raw(option, path)
    try:
        with raw, io.BufferedWriter(raw) as plain:
            if path.endswith(".gz"):
                with gzip.GzipFile(os.path.basename(path), "wb", fileobj=plain) as packed:
                    yield packed
            else:
                yield plain
        if part is not None:
            with sentence_for(option, path):
                part.replace(final_name)
    except BaseException:
        if part is not None:
            part.unlink(missing_ok=True)
        raise


@contextmanager
def sentence_for(option: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{option}={path} cannot be written ({error.strerror})") from error


@final
class OutputFile(io.FileIO):
    """A file that is named where it cannot be written, as on a full disk."""

    def __init__(self, option: str, path: str, file: str | Path | int, mode: str) -> None:
        self.option, self.path = option, path
        super().__init__(file, mode)

    def write(self, data: Any, /) -> int:
        with sentence_for(self.option, self.path):
            return super().write(data)


def open_raw(option: str, path: str) -> tuple[OutputFile, Path | None, Path]:
    """The open file; the temporary one that it is, or None; and the file that it becomes."""
    final_name = Path(os.path.realpath(path))
    if descriptor := DESCRIPTOR.fullmatch(NUMBERS.get(path, path)):
        return OutputFile(option, path, os.dup(int(descriptor[1])), "w"), None, final_name
    try:
        replaced = os.stat(path)
    except FileNotFoundError:
        replaced = None
    if replaced is not None:
        if not stat.S_ISREG(replaced.st_mode):
            return OutputFile(option, path, path, "w"), None, final_name
        final_name.open("r+b").close()  # a file that may not be written is not replaced
    part = final_name.with_name(f".{token_hex(8)}.part")
    raw = OutputFile(option, path, part, "x")
    if replaced is not None:
        with suppress(PermissionError):
            os.fchown(raw.fileno(), replaced.st_uid, replaced.st_gid)
        os.fchmod(raw.fileno(), stat.S_IMODE(replaced.st_mode))
    return raw, part, final_name
