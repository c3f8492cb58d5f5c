"""Readers of text files as lines, and as pairs of lines or columns; errors name the file and the line."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from seq2seq_attn.errors import UserError

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_BYTES = 1 << 24  # size of a chunk; a line may not fill a whole chunk
OTHER_FORMATS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet; save it as CSV"),
    **dict.fromkeys((".zip", ".7z"), "compressed; decompress it, or compress it with gzip"),
}
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
COMPRESSED = (*OPENERS, ".zst")
FORMATS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, plain or compressed, without line ends; only LF and CR LF end a line.

    Raises:
        UserError: if it is not a regular file, cannot be read, is empty or not UTF-8, has a NUL byte or an endless
            line, or ends its lines with CR alone.
    """
    text = "".join(decoded_chunks(path))
    if not text:
        raise UserError(f"{path} is empty; give a file with text, or get it again")
    lines = text.removesuffix("\n").split("\n")
    if len(lines) == 1 and "\r" in lines[0].removesuffix("\r"):
        raise UserError(f"{path} ends its lines with carriage returns alone; convert them to line feeds")
    return [line.removesuffix("\r") for line in lines]


def decoded_chunks(path: Path) -> Iterator[str]:
    """Yield the text chunk by chunk, so that an endless line is refused before it fills the memory."""
    decoder, line = codecs.getincrementaldecoder("utf-8-sig")(), 1
    for chunk in chunks(path):
        if line == 1 and chunk.startswith(UTF_16):
            raise UserError(f"{path} is UTF-16; convert the file to UTF-8")
        try:
            text = decoder.decode(chunk, final=len(chunk) < MOST_BYTES)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            raise UserError(f"{path}, line {line}: not UTF-8; convert the file to UTF-8 or remove the line") from error
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise UserError(f"{path}, line {line}: a NUL byte, so this is not plain text; remove the line")
        if len(chunk) == MOST_BYTES and b"\n" not in chunk:
            raise UserError(f"{path}, line {line}: longer than {MOST_BYTES:,} bytes; cut or remove the line")
        line += text.count("\n")
        yield text


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the uncompressed bytes in chunks of `MOST_BYTES`; the last is shorter and may be empty."""
    with opened(path) as stream:
        while len(chunk := stream.read(MOST_BYTES)) == MOST_BYTES:
            yield chunk
        yield chunk


@contextmanager
def opened(path: Path, compressed: bool = True) -> Iterator[Any]:
    """Open a file, plain or compressed; what fails while it is open is a UserError that names it.

    `fileobj` of a decompressed stream is the file.

    Args:
        compressed: whether to decompress it.
    """
    if compressed:
        check_format(path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UserError(f"{path} is a pipe or a device, not a file; save its content to a file first")
    try:
        with path.open("rb") as raw, decompressed(raw, compressed_ending(path) if compressed else "") as stream:
            yield stream if stream is raw else SimpleNamespace(read=stream.read, fileobj=raw)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check data.path, or data.train, data.val and data.test") from error
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:  # ValueError: a NUL byte in the path
        if is_damage(error, path):
            kind = compression_of(path.name)
            raise UserError(f"{path} is a damaged {kind} file ({error}); delete it and get it again") from error
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise UserError(
            f"{path} cannot be read ({why}); check data.path, or data.train, data.val and data.test"
        ) from error


def compression_of(file: str) -> str:
    """Return the format of a compressed file by its name, for a message; gzip if the name does not say."""
    return FORMATS.get(compressed_ending(file), "gzip")


def is_damage(error: Exception, path: Path) -> bool:
    """Return whether a compressed file is damaged, and not out of reach; bz2 and Arrow have no errors of their own."""
    plain = compressed_ending(path) in (".bz2", ".zst") and isinstance(error, OSError) and error.errno is None
    return plain or isinstance(error, gzip.BadGzipFile | EOFError | zlib.error | lzma.LZMAError)


def check_format(path: Path) -> None:
    """Refuse a file that is not text, judged by its name.

    Raises:
        UserError: for a spreadsheet, and for an archive.
    """
    for suffix, advice in OTHER_FORMATS.items():
        if ends_with(plain_name(path.name), suffix):
            raise UserError(f"{path} is {advice}")


def ends_with(file: str | Path, *endings: str) -> bool:
    """Return whether the name of a file has one of these endings, in large letters or small ones."""
    return str(file).lower().endswith(endings)


def compressed_ending(file: str | Path) -> str:
    """Return the ending of a compressed file in small letters; empty for any other."""
    return next((ending for ending in COMPRESSED if ends_with(file, ending)), "")


def plain_name(file: str) -> str:
    """Return the name of a file without the ending of its compression."""
    return file[: len(file) - len(compressed_ending(file))]


def decompressed(raw: io.BufferedReader, suffix: str) -> Any:
    """Return the stream of the uncompressed bytes of a file; a plain one is returned as it is.

    Raises:
        UserError: for a compressed file without any bytes, such as a download that failed; gzip and zstd would read an
            empty text from it.
    """
    if suffix in COMPRESSED and not raw.peek(1):
        kind = compression_of(raw.name)
        raise UserError(f"{raw.name} is a damaged {kind} file (it has no bytes); delete it and get it again")
    if suffix == ".zst":
        import pyarrow as pa  # 0.3 s that other files do not pay

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"))
    return OPENERS[suffix](raw) if suffix in OPENERS else raw


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the first two of the two or three tab-separated columns of a file: English, French and attribution.

    Raises:
        UserError: as `read_lines`, and if a line has a wrong number of columns, or not as many as the other lines.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) not in (2, 3):
            raise UserError(
                f"{path}, line {number}: {len(row)} tab-separated column{'s' * (len(row) > 1)} "
                "instead of 2 or 3 (English, French, attribution); fix or remove the line"
            )
    check_columns(path, [len(row) for row in rows])
    return [(row[0], row[1]) for row in rows]


def check_columns(path: Path, columns: list[int]) -> None:
    """Refuse lines with two columns among lines with three, or the reverse: a stray tab would misalign the pair."""
    lines = Counter(columns)
    if lines[2] and lines[3]:
        rare, common = sorted((2, 3), key=lambda number: (lines[number], number == columns[0]))
        others = "half of the lines have" if lines[2] == lines[3] else "most lines have"
        raise UserError(
            f"{path}, line {columns.index(rare) + 1}: {rare} tab-separated columns, where {others} {common}; a "
            "tab inside a sentence, or a missing one, would pair the wrong texts: fix or remove the line"
        )


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Return the pairs of two line-aligned files.

    Raises:
        UserError: as `read_lines`, and if one file has more lines than the other.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}; parallel files need the same number, "
            "line for line"
        )
    return list(zip(sources, targets, strict=True))


def orient(pairs: list[tuple[str, str]], source_language: str, target_language: str) -> list[tuple[str, str]]:
    """Return English-French pairs as (source, target) pairs.

    Raises:
        UserError: if the two languages are not English and French.
    """
    if (source_language, target_language) == ("en", "fr"):
        return pairs
    if (source_language, target_language) == ("fr", "en"):
        return [(french, english) for english, french in pairs]
    raise UserError(
        f"data.source_language={source_language} data.target_language={target_language} is not a direction "
        "of this corpus; use en and fr, or fr and en"
    )
