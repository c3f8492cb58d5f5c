"""Lines of a byte stream, read in bounded windows, and the progress made. A bad line does not stop the others."""

from __future__ import annotations

import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seq2seq_attn.data.reading import UTF_16, check_format, compressed_ending, compression_of, decompressed, is_damage
from seq2seq_attn.errors import UserError
from seq2seq_attn.text import plain_console

MOST_BYTES = 1 << 20  # of a line; the rest is left out
MOST_SKIPPED = 1 << 30  # bytes left out of a line, after which the file is taken to be endless, as /dev/zero is
MOST_CHARACTERS = 1 << 21  # of a window
UTF_16_NOTE = "UTF-16, not UTF-8"


class Line(NamedTuple):
    """A line without its end; numbers count from 1.

    Attributes:
        notes: what could not be read.
    """

    number: int
    text: str
    notes: list[str]


@contextmanager
def opened(option: str | None, path: str | None, standard: Any = None) -> Iterator[Any]:
    """Open a file for bytes, unpacked if its name ends in gz, zst, xz or bz2.

    Args:
        option: that names the file, for an error; None: it was typed without one.
        path: None: the standard stream, which stays open.
    """
    if path is None:
        yield standard
        return
    check_format(Path(path))
    try:
        raw = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        name = path if option is None else f"{option}={path}"
        raise UserError(f"{name} cannot be read ({error.strerror})") from error
    with raw, decompressed(raw, compressed_ending(path)) as stream:
        yield stream


def read_lines(stream: Any, name: str) -> Iterator[Line]:
    """Yield lines, which end at line feeds only; bytes that are not UTF-8 are replaced.

    Args:
        stream: a file open for bytes, or the buffer of standard input.

    Raises:
        UserError: if a compressed file is broken, a line has no end, or reading fails.
    """
    try:
        for number in count(1):
            raw = stream.readline(MOST_BYTES)
            if not raw:
                return
            cut = not raw.endswith(b"\n") and skip_line(stream, f"{name}, line {number}")
            raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            text, notes = decode(raw.removesuffix(b"\n").removesuffix(b"\r"), whole=not cut)
            if number == 1 and raw.startswith(UTF_16):
                notes = [f"{UTF_16_NOTE}; convert the text"]
            if cut:
                notes.append(f"longer than {MOST_BYTES:,} bytes; the rest is left out")
            yield Line(number, text, notes)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if is_damage(error, Path(name)):
            raise UserError(f"{name} is a damaged {compression_of(name)} file ({error}); get it again") from error
        raise UserError(f"{name} cannot be read ({getattr(error, 'strerror', None) or error})") from error


def skip_line(stream: Any, location: str) -> bool:
    """Read to the end of the line, and return whether there was more than the line end."""
    skipped = 0
    while rest := stream.readline(MOST_BYTES):
        skipped += len(rest.removesuffix(b"\n"))
        if rest.endswith(b"\n"):
            break
        if skipped > MOST_SKIPPED:
            raise UserError(f"{location}: no line end within {MOST_SKIPPED:,} bytes; give a text file")
    return skipped > 0


def decode(raw: bytes, whole: bool) -> tuple[str, list[str]]:
    """Return the text and notes; a line that was cut may end within a letter, which is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=whole), []
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), ["not UTF-8; what cannot be read is replaced"]


def windows(lines: Iterator[Line], most_lines: int) -> Iterator[list[Line]]:
    """Yield runs of at most so many lines, fewer where lines are long."""
    window: list[Line] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += len(line.text)
        if len(window) >= most_lines or characters >= MOST_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def count_lines(path: str | None) -> int | None:
    """Return the number of lines of a plain file; None for a stream, or a file that would have to be unpacked."""
    if path is None or compressed_ending(path) or not Path(path).is_file():
        return None
    ends, last = 0, b"\n"
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            ends, last = ends + chunk.count(b"\n"), chunk[-1:]
    return ends + (last != b"\n")


@contextmanager
def line_count(total: int | None, shown: bool, counted: str = "lines") -> Iterator[Callable[[int], None]]:
    """Show progress on standard error; the function it gives takes how many more lines are done.

    Args:
        total: the number of lines, where it is known.
        counted: what is counted, if not lines.
    """
    columns = [BarColumn(), MofNCompleteColumn(), TextColumn(counted), TimeElapsedColumn(), TimeRemainingColumn()]
    # Rich keeps what others print to standard error above the bar.
    with Progress(*columns, console=plain_console(stderr=True), disable=not shown) as progress:
        yield partial(progress.advance, progress.add_task(counted, total=total))
