"""Readers of text files as lines, columns and JSON records; errors name the file and the line."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from seq2seq_attn.errors import UserError

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NOT_TEXT = re.compile(r"[\0\ud800-\udfff]")  # JSON can escape a NUL and lone surrogates; text must not contain them
LINE_END = re.compile(r"[\r\n]+")
MOST_BYTES = 1 << 24  # size of a chunk; a line may not fill a whole chunk


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, plain or .gz, without line ends; only LF and CR LF end a line.

    Raises:
        UserError: if it is not a regular file, cannot be read, is empty or not UTF-8, has a NUL byte or an endless
            line, or ends its lines with CR alone.
    """
    text = "".join(decoded_chunks(path))
    if not text:
        raise UserError(f"{path} is empty; check data.path or get the file again")
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
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UserError(f"{path} is a pipe or a device, not a file; save its content to a file first")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while len(chunk := stream.read(MOST_BYTES)) == MOST_BYTES:
                yield chunk
            yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); delete it and get it again") from error
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check data.path, or data.train, data.val and data.test") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path} cannot be read ({why}); check data.path, or data.train, data.val and data.test"
        ) from error


def read_pairs(
    path: Path, names: str = "English, French, attribution", columns: tuple[int, int] = (1, 2)
) -> list[tuple[str, str]]:
    """Return the source and target columns of a file with two or three tab-separated columns.

    Args:
        names: names of the columns, for the error message.
        columns: numbers of the source and the target column, from 1.

    Raises:
        UserError: as `read_lines`, and if a line has a wrong number of columns, or not as many as the other lines.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    numbers = range(max(2, *columns), 4)
    for number, row in enumerate(rows, start=1):
        if len(row) not in numbers:
            raise UserError(
                f"{path}, line {number}: {len(row)} tab-separated column{'s' * (len(row) > 1)} "
                f"instead of {' or '.join(map(str, numbers))} ({names}); fix or remove the line"
            )
    check_columns(path, [len(row) for row in rows])
    source, target = (column - 1 for column in columns)
    return [(row[source], row[target]) for row in rows]


def check_columns(path: Path, columns: list[int]) -> None:
    """Refuse lines with two columns among lines with three, or the reverse: a stray tab would misalign the pair."""
    lines = Counter(columns)
    if lines[2] != lines[3] and lines[2] and lines[3]:
        rare, common = sorted((2, 3), key=lambda number: lines[number])
        raise UserError(
            f"{path}, line {columns.index(rare) + 1}: {rare} tab-separated columns, where most lines have {common}; a "
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


def read_json_lines(path: Path, source_field: str, target_field: str) -> list[tuple[str, str]]:
    """Return the pairs of a file with one JSON object per line.

    Raises:
        UserError: as `read_lines`, and if a line is not an object or does not have both fields as text.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # also for a number that is too long, or nesting too deep
            why = getattr(error, "msg", error)
            raise UserError(f"{path}, line {number}: not JSON ({why}); fix or remove the line") from error
        texts = []
        for field, option in ((source_field, "source_field"), (target_field, "target_field")):
            text = record.get(field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                names = readable(", ".join(record)) if isinstance(record, dict) else "none"
                raise UserError(
                    f"{path}, line {number}: no text in the field '{field}' (fields: {names}); set data.{option} to "
                    "the name of the field"
                )
            if NOT_TEXT.search(text):
                raise UserError(
                    f"{path}, line {number}: a NUL or half a surrogate pair in the field '{field}', so this is not "
                    "plain text; remove the line"
                )
            texts.append(LINE_END.sub(" ", text))
        pairs.append((texts[0], texts[1]))
    return pairs


def readable(text: str, most: int = 100) -> str:
    """Return the first `most` characters of `text`, with unprintable ones replaced, for a one-line message."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text[:most])
    return shown + "…" * (len(text) > most)


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
