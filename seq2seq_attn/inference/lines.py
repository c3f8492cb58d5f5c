"""Lines of a byte stream, read ahead in bounded windows; nothing that stands in a line stops the rest."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, NamedTuple, Protocol, runtime_checkable

from seq2seq_attn.errors import UserError

MOST_BYTES = 1 << 20  # of a line
MOST_SKIPPED = 1 << 30  # bytes of a line: one that goes on has no end, as /dev/zero
MOST_CHARACTERS = 1 << 21  # of a window


@runtime_checkable
class Stream(Protocol):
    """A file open for bytes, or standard input's."""

    def readline(self, size: int, /) -> bytes: ...


class Line(NamedTuple):
    """A line without its end; numbers count from 1.

    Attributes:
        notes: what could not be read.
    """

    number: int
    text: str
    notes: list[str]


def opened(option: str, path: str | None, standard: Any = None) -> AbstractContextManager[Any]:
    """The file as a byte stream, unpacked if its name ends in gz; for None the standard stream, left open."""
    if path is None:
        return nullcontext(standard)
    try:
        return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")
    except OSError as error:
        raise UserError(f"{option}={path} cannot be read ({error.strerror})") from error


def read_lines(stream: Stream, name: str) -> Iterator[Line]:
    """Lines end at line feeds only; what is not UTF-8 is replaced.

    Raises:
        UserError: if a gz file is broken, a line has no end, or reading fails.
    """
    try:
        for number in count(1):
            raw = stream.readline(MOST_BYTES)
            if not raw:
                return
            cut = not raw.endswith(b"\n") and skip_line(stream, f"{name}, line {number}")
            raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            text, notes = decoded(raw.removesuffix(b"\n").removesuffix(b"\r"), whole=not cut)
            if cut:
                notes.append(f"longer than {MOST_BYTES:,} bytes; the rest is left out")
            yield Line(number, text, notes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name} is a broken gz file ({error}); get it again") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror})") from error


def skip_line(stream: Stream, location: str) -> bool:
    """Whether anything stood in the rest of the line."""
    skipped = 0
    while rest := stream.readline(MOST_BYTES):
        skipped += len(rest.removesuffix(b"\n"))
        if rest.endswith(b"\n"):
            break
        if skipped > MOST_SKIPPED:
            raise UserError(f"{location}: no line end within {MOST_SKIPPED:,} bytes; give a text file")
    return skipped > 0


def decoded(raw: bytes, whole: bool) -> tuple[str, list[str]]:
    """Text and notes; of a line that is not whole, the last letter may be cut through, and goes."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=whole), []
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), ["not UTF-8; what cannot be read is replaced"]


def windows(lines: Iterator[Line], most_lines: int) -> Iterator[list[Line]]:
    """Runs of lines, so many at a time, or fewer where they are long."""
    block: list[Line] = []
    characters = 0
    for line in lines:
        block.append(line)
        characters += len(line.text)
        if len(block) >= most_lines or characters >= MOST_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def count_lines(path: str) -> int:
    """Of a plain file."""
    ends, last = 0, b"\n"
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            ends, last = ends + chunk.count(b"\n"), chunk[-1:]
    return ends + (last != b"\n")
