"""Text files to lines and columns, with the place named where one is broken."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from pathlib import Path

from seq2seq_attn.tensors.error import UserError


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, plain or .gz, without line ends; only LF, or CR and LF, ends a line.

    Raises:
        UserError: if it cannot be read, is empty, is not UTF-8, or has a NUL byte.
    """
    try:
        content = path.read_bytes()
        content = (gzip.decompress(content) if path.suffix == ".gz" else content).removeprefix(codecs.BOM_UTF8)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a broken gz file ({error}); delete it and get it again") from error
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check data.path") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check data.path") from error
    if not content:
        raise UserError(f"{path} is empty; check data.path or get the file again")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not UTF-8; convert the file to UTF-8 or remove the line"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}, line {line}: a NUL byte, so this is not plain text; remove the line")
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def read_pairs(path: Path, names: str = "English, French, attribution") -> list[tuple[str, str]]:
    """The first two of two or three tab-separated columns.

    Args:
        names: of the columns, for the error's sentence.

    Raises:
        UserError: as `read_lines`, and if a line has another number of columns.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) not in (2, 3):
            raise UserError(
                f"{path}, line {number}: {len(columns)} tab-separated column{'s' * (len(columns) > 1)} "
                f"instead of 2 or 3 ({names}); mend or remove the line"
            )
        pairs.append((columns[0], columns[1]))
    return pairs


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Pairs of two files in step.

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
    """Pairs of a file with a JSON object a line.

    Raises:
        UserError: as `read_lines`, and if a line is no object or has not both fields as text.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg}); mend or remove the line") from error
        texts = []
        for field, option in ((source_field, "source_field"), (target_field, "target_field")):
            text = record.get(field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                names = ", ".join(record) if isinstance(record, dict) else "none"
                raise UserError(
                    f"{path}, line {number}: no text in the field '{field}' (fields: {names}); name it by data.{option}"
                )
            texts.append(text)
        pairs.append((texts[0], texts[1]))
    return pairs


def turn(pairs: list[tuple[str, str]], source_language: str, target_language: str) -> list[tuple[str, str]]:
    """English-French pairs as (source, target).

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
