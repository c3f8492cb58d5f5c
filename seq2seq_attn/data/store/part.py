"""A cleaned chunk of a corpus in a file of Arrow, with the hashes that find duplicates and held-out sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import UInt64
from pyarrow import ipc

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Pair, hashes
from seq2seq_attn.data.splitting import check_lengths
from seq2seq_attn.data.store.pair_source import PairSource, RawChunk
from seq2seq_attn.data.store.rejected import MOST_REJECTED_LINES
from seq2seq_attn.files import replacing

PART = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("reference", pa.large_string()),  # the uncleaned target; null: the target
        ("others", pa.list_(pa.large_string())),  # further references of a given test set; null: none
        ("pair_hash", pa.uint64()),
        ("source_hash", pa.uint64()),
    ]
)


class Part(NamedTuple):
    """A cleaned chunk in a file, with its counts by step and the first of the lines that were rejected."""

    file: Path
    rows: int
    counts: dict[str, int]
    rejected: list[tuple[str, int, str]]
    corpus: str = ""


def clean_chunk(
    source: PairSource, chunk: RawChunk, cleaning: Cleaning, filters: bool, split: str, seed: int, file: Path
) -> Part:
    """Write the cleaned pairs of a chunk; `filters`: leave out those that training leaves out, but for duplicates."""
    with suppress(OSError, pa.ArrowInvalid):  # it is not there, or was cut, as by an interrupted copy
        return open_part(file)
    parsed = source.parse(chunk)
    pairs, steps = cleaning.normalize(parsed.pairs)
    counts = {"lines rejected": len(parsed.rejected)} | steps
    if filters:
        pairs, dropped = cleaning.filter(pairs)
        counts |= dropped
    else:
        header = source.has_header and chunk.first > 1  # a line that later chunks count, and that is no pair
        check_lengths(split, pairs, chunk.first - header, source.files)
    if source.has_one_side and not filters:
        texts = [pair for pair in pairs if pair.source]
        counts["dropped, empty"], pairs = len(pairs) - len(texts), texts
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    columns: list[Any] = [
        sources,
        targets,
        [None if pair.reference == pair.target else pair.reference for pair in pairs],
        parsed.others or [None] * len(pairs),
        hashes(f"{source}\0{target}" for source, target, _ in pairs),
        hashes(f"{seed}\t{source}" for source in sources),
    ]
    rejected = parsed.rejected[:MOST_REJECTED_LINES]
    about = {"counts": counts, "rejected": rejected}
    table = pa.table(columns, schema=PART.with_metadata({"about": json.dumps(about)}))
    write_table(table, file)
    return Part(file, len(pairs), counts, rejected)


def write_table(table: pa.Table, file: Path) -> None:
    with replacing(file) as stream, ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)


def read_table(file: Path) -> pa.Table:
    """Return the table, mapped into memory."""
    return ipc.open_file(pa.memory_map(str(file))).read_all()


def open_part(file: Path) -> Part:
    table = read_table(file)
    about = json.loads(table.schema.metadata[b"about"])
    return Part(file, len(table), about["counts"], [tuple(row) for row in about["rejected"]])


def column(part: Part, name: str) -> np.ndarray:
    """Return a column of hashes."""
    return read_table(part.file)[name].combine_chunks().to_numpy()


def all_hashes(parts: list[Part]) -> UInt64[np.ndarray, " rows"]:
    """Return the hashes of all sources."""
    return np.concatenate([np.zeros(0, np.uint64), *(column(part, "source_hash") for part in parts)])


def read_pairs(part: Part, rows: np.ndarray | None = None) -> Iterator[Pair]:
    """Yield the pairs of a part, or of some of its rows."""
    table = read_table(part.file).select(["source", "target", "reference"])
    for batch in (table if rows is None else table.take(rows)).to_batches():
        for source, target, reference in zip(*(texts.to_pylist() for texts in batch.columns), strict=True):
            yield Pair(source, target, target if reference is None else reference)


def part_file(folder: Path, split: str, number: int) -> Path:
    return folder / split / f"{number:06d}.arrow"
