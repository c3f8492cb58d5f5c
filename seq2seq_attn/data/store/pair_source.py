"""Files of sentence pairs as chunks: read in one process, parsed in others; a bad line is rejected by itself."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Int64

from seq2seq_attn.data.reading import opened
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256

CHUNK_LINES = 20_000
CHUNK_BYTES = 1 << 26  # of all sides; the line that reaches them is the last of its chunk
BUFFER = 1 << 22  # bytes read at once
MOST_BYTES = 1 << 24  # of a line; an endless one would fill the memory
SAMPLED_BYTES = 1 << 16  # at the beginning, the middle and the end of a file
UTF_8_MARK, UTF_16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


@final
@dataclass(frozen=True)
class RawChunk:
    """A part of the files as it is there.

    Attributes:
        first: number of its first line or row, from 1.
        read: bytes of the files read so far, compressed if they are.
        content: what the source's `parse` takes.
    """

    first: int
    read: int
    content: Any


@final
@dataclass(frozen=True)
class Parsed:
    """The pairs of a chunk, and (file, line, reason) of each line that holds none.

    Attributes:
        others: the further references of each pair; empty: there are none.
        blank: numbers of the lines between records, which are neither pairs nor rejected.
    """

    pairs: list[tuple[str, str]]
    rejected: list[tuple[str, int, str]] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)
    blank: set[int] = field(default_factory=set)


class PairSource(ABC):
    """One file of pairs, or two line-aligned ones.

    Attributes:
        files: the files, for sizes, times and progress.
        corpus: name of the corpus of a mixture that it belongs to.
        has_one_side: whether the sides of a pair are one text; empty texts are then dropped from every split.
        has_header: whether the first line names the columns.
    """

    files: tuple[Path, ...] = ()
    corpus = ""
    has_one_side = False
    has_header = False

    @abstractmethod
    def chunks(self) -> Iterator[RawChunk]:
        """Yield the content in order, cut in a way that depends on the content alone.

        Raises:
            UserError: if a file cannot be read, or two files differ in length.
        """

    @abstractmethod
    def parse(self, chunk: RawChunk) -> Parsed:
        """Return the pairs of a chunk; this runs in another process."""

    def options(self) -> list[Any]:
        """Return what `parse` depends on besides the files, as plain data."""
        return []

    @property
    def size(self) -> int:
        """Bytes of the files, compressed if they are."""
        return sum(os.stat(file).st_size for file in self.files)

    def identity(self, verify: bool = False) -> list[Any]:
        """Return what changes with the content.

        Args:
            verify: read the files as a whole, instead of their size, time and three samples.
        """
        return [type(self).__name__, self.options(), [file_identity(file, verify) for file in self.files]]


@final
class LineAlignedFiles(PairSource):
    """Text files whose lines correspond, plain or compressed: a source, a target, and further references, if any."""

    def __init__(self, source: Path, target: Path, *others: Path) -> None:
        self.files = (source, target, *others)

    def chunks(self) -> Iterator[RawChunk]:
        sides, first = [line_blocks(file) for file in self.files], 1
        blocks = [LineBlock(b"", 0, 0)] * len(sides)
        while True:
            blocks = [
                block if block.lines else next(side, LineBlock(b"", 0, block.read))
                for block, side in zip(blocks, sides, strict=True)
            ]
            lines = [block.lines for block in blocks]
            if not min(lines):
                break
            most = min(lines)
            if len(set(lines)) > 1 or sum(len(block.content) for block in blocks) > CHUNK_BYTES:
                most = lines_of_chunk(np.sum([block.ends()[:most] for block in blocks], axis=0), most)
            heads, rests = zip(*(block.cut(most) for block in blocks), strict=True)
            yield RawChunk(first, sum(block.read for block in blocks), [head.content for head in heads])
            first, blocks = first + most, list(rests)
        totals = [first - 1 + n + sum(rest.lines for rest in side) for n, side in zip(lines, sides, strict=True)]
        if other := next((at for at, total in enumerate(totals) if total != totals[0]), 0):
            raise UserError(
                f"{self.files[0]} has {totals[0]} lines and {self.files[other]} has {totals[other]}; parallel files "
                "need the same number, line for line"
            )

    def parse(self, chunk: RawChunk) -> Parsed:
        sides = [decoded_lines(block) for block in chunk.content]
        rejected: list[tuple[str, int, str]] = []
        bad: set[int] = set()
        for file, (_, bad_lines) in zip(self.files, sides, strict=True):
            new = {number: reason for number, reason in bad_lines.items() if number not in bad}
            rejected += rejected_lines(file, chunk, new)
            bad |= new.keys()
        rows = list(zip(*(lines for lines, _ in sides), strict=True))
        rows = [row for number, row in enumerate(rows) if number not in bad] if bad else rows
        if len(sides) == 2:
            return Parsed(rows, rejected)
        return Parsed([row[:2] for row in rows], rejected, [list(row[2:]) for row in rows])


@final
class LineBlock(NamedTuple):
    """Whole lines of a file, their number, and the bytes of the file that were read until here."""

    content: bytes
    lines: int
    read: int

    def ends(self) -> Int64[np.ndarray, " lines"]:
        """Return where each line ends; the last may have no line end."""
        ends = np.flatnonzero(np.frombuffer(self.content, np.uint8) == ord("\n")) + 1
        return ends if len(ends) == self.lines else np.append(ends, len(self.content))

    def cut(self, lines: int) -> tuple[LineBlock, LineBlock]:
        """Return the first lines, and the others."""
        if lines == self.lines:
            return self, LineBlock(b"", 0, self.read)
        end, others = int(self.ends()[lines - 1]), self.lines - lines
        return LineBlock(self.content[:end], lines, self.read), LineBlock(self.content[end:], others, self.read)


def lines_of_chunk(ends: Int64[np.ndarray, " lines"], most: int) -> int:
    """Return how many lines the next chunk has, by where they end; 0: as many as there are, and perhaps more."""
    reaching = int(np.searchsorted(ends[:most], CHUNK_BYTES)) + 1
    return min(reaching, most) if min(reaching, most) <= len(ends) else 0


def line_blocks(file: Path, *, carriage_returns: bool = False, num_lines: int | None = None) -> Iterator[LineBlock]:
    """Yield blocks of whole lines that are as large as chunks, but for the last.

    Args:
        carriage_returns: whether lines may end with carriage returns alone; they all are then one block.
        num_lines: of a block, at most; None: `CHUNK_LINES`.

    Raises:
        UserError: if the file cannot be read, or is empty, UTF-16, without line feeds or with an endless line.
    """
    most, held, size, ends, yielded = num_lines or CHUNK_LINES, [b""], 0, np.zeros(0, np.int64), False
    with opened(file) as stream:
        head = True
        while buffer := stream.read(BUFFER):
            if head:
                check_head(file, buffer, carriage_returns)
                buffer, head = buffer.removeprefix(UTF_8_MARK), False
            new_ends = np.flatnonzero(np.frombuffer(buffer, np.uint8) == ord("\n")) + (size + 1)
            held, size, ends = [*held, buffer], size + len(buffer), np.concatenate([ends, new_ends])
            if lines_of_chunk(ends, most):  # before that, joining would copy long lines again and again
                whole, start, taken = b"".join(held), 0, 0
                while lines := lines_of_chunk(ends[taken : taken + most] - start, most):
                    taken += lines
                    end = int(ends[taken - 1])
                    yield LineBlock(whole[start:end], lines, read_of(stream))
                    yielded = True
                    start = end
                held, size, ends = [whole[start:]], size - start, ends[taken:] - start
            if size - (int(ends[-1]) if len(ends) else 0) > MOST_BYTES:
                raise UserError(f"{file} has a line of more than {MOST_BYTES:,} bytes; cut or remove the line")
        if head:
            raise UserError(f"{file} is empty; give a file with text, or get it again")
        last = b"".join(held)
        if last:
            yield LineBlock(last, len(ends) + (not last.endswith(b"\n")), read_of(stream))
        elif not yielded:  # a byte-order mark alone
            raise UserError(f"{file} is empty; give a file with text, or get it again")


def read_of(stream: Any) -> int:
    """Return the bytes of the file that a stream has read, compressed if they are."""
    return getattr(stream, "fileobj", stream).tell()


def line_chunks(file: Path) -> Iterator[RawChunk]:
    """Yield blocks of whole lines as chunks."""
    first = 1
    for block in line_blocks(file):
        yield RawChunk(first, block.read, block.content)
        first += block.lines


def rejected_lines(file: Path, chunk: RawChunk, bad: dict[int, str]) -> list[tuple[str, int, str]]:
    return [(str(file), chunk.first + number, reason) for number, reason in bad.items()]


def check_head(file: Path, head: bytes, carriage_returns: bool) -> None:
    if head.startswith(UTF_16_MARKS):
        raise UserError(f"{file} is UTF-16; convert the file to UTF-8")
    if not carriage_returns and b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise UserError(f"{file} ends its lines with carriage returns alone; convert them to line feeds")


def decoded_lines(block: bytes) -> tuple[list[str], dict[int, str]]:
    """Return the lines as text, and the reason for each that is none, by its index."""
    try:
        lines, bad = block.decode().removesuffix("\n").split("\n"), {}
    except UnicodeDecodeError:
        raw = block.removesuffix(b"\n").split(b"\n")
        lines = [line.decode(errors="replace") for line in raw]
        bad = {number: "not UTF-8" for number, line in enumerate(raw) if not is_utf_8(line)}
    if b"\0" in block:
        bad |= {number: "a NUL byte" for number, line in enumerate(lines) if "\0" in line}
    return ([line.removesuffix("\r") for line in lines] if b"\r\n" in block or block.endswith(b"\r") else lines), bad


def is_utf_8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def file_identity(file: Path, verify: bool) -> list[Any]:
    """Return name, size, and time and samples or, to verify, SHA-256 of a file."""
    digest = hashlib.sha256()
    with opened(file, compressed=False) as stream:
        status = os.stat(file)
        if verify:
            return [file.name, status.st_size, sha256(file)]
        for start in (0, status.st_size // 2, max(0, status.st_size - SAMPLED_BYTES)):
            stream.seek(start)
            digest.update(stream.read(SAMPLED_BYTES))
    return [file.name, status.st_size, status.st_mtime_ns, digest.hexdigest()]
