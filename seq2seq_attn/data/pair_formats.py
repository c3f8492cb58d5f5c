"""Files of pairs: their formats, by the end of the name, and those of several that are empty."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq_attn.data.columnar_file import ArrowFile, ParquetFile, arrow_batches
from seq2seq_attn.data.columns import Choice, Column
from seq2seq_attn.data.json_lines import JsonLines
from seq2seq_attn.data.pair_file import PairFile
from seq2seq_attn.data.reading import compressed_ending, ends_with, opened, plain_name
from seq2seq_attn.data.table_file import CsvFile, TabSeparatedFile
from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)
KINDS = {  # by the end of the name
    ".tsv": TabSeparatedFile, ".csv": CsvFile, ".json": JsonLines, ".jsonl": JsonLines, ".ndjson": JsonLines,
    ".parquet": ParquetFile, ".arrow": ArrowFile,
}  # fmt: skip


def pair_file(
    path: Path,
    columns: tuple[Column, Column],
    languages: tuple[str, str],
    positions: tuple[int, int] = (0, 1),
    one_side: bool = False,
) -> PairFile:
    """Return the reader of a file.

    The name gives the format: .csv, .jsonl, .parquet, .arrow, and else tab-separated columns.

    Args:
        columns: of the source and the target. Without a number or name they are those named by their language (`fr`,
            `french`, `translation.fr`) or side (`source`, `src`), and else those at `positions`.
        languages: of the source and the target.
        positions: the columns, from 0, where nothing else tells them.
        one_side: whether the sides are not told apart, so that one column or field, which is then that of both
            `columns`, may be the only text.

    Raises:
        UserError: if the file cannot be read, or lacks a column.
    """
    name = plain_name(path.name)
    kind: Any = next((kind for suffix, kind in KINDS.items() if ends_with(name, suffix)), TabSeparatedFile)
    return kind(path, Choice(columns, languages, positions, one_side))


def is_pair_file(file: str) -> bool:
    """Return whether a file holds pairs, by its name."""
    return ends_with(plain_name(file), *KINDS)


def without_empty(files: list[Path], given: str) -> list[Path]:
    """Return the files without the empty ones, which many tools write for parts without rows; if all are, the first.

    Args:
        given: what names the files, for a warning.
    """
    empty = [file for file in files if is_empty(file)] if len(files) > 1 else []
    if empty:
        log.warning(f"{len(empty)} of the {len(files)} files of {given} are empty, such as {empty[0]}")
    return [file for file in files if file not in empty] or files[:1]


def is_empty(path: Path) -> bool:
    """Return whether a file holds no bytes, compressed or not, or is a Parquet or Arrow file without rows."""
    if not path.is_file():
        return False
    if not path.stat().st_size:
        return True
    if compressed_ending(path):
        with suppress(UserError), opened(path) as stream:  # a damaged file is not empty; its reader reports it
            return not stream.read(1)
        return False
    if not ends_with(path, ".parquet", ".arrow"):
        return False
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if ends_with(path, ".parquet"):
            return parquet.read_metadata(path).num_rows == 0
        with pa.memory_map(str(path)) as file:
            return not any(len(batch) for batch, _ in arrow_batches(file)[1])
    except (OSError, pa.ArrowException):  # damaged; its reader reports it
        return False
