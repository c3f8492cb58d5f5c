"""Shards of text in files of Arrow: blocks of rows that are drawn from the whole corpus, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool
from pyarrow import compute, ipc

from seq2seq_attn.data.store.part import Part, read_pairs, read_table
from seq2seq_attn.files import replacing

SHARD_ROWS = 1 << 19  # pairs that are sorted by length together; a corpus of one shard keeps its order
BLOCK_ROWS = 1 << 11  # neighbours that stay together when a larger corpus is spread over its shards
WRITTEN_BLOCKS = 32  # blocks that are written to a shard at once
SHARD = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("references", pa.list_(pa.large_string())),  # null: the target alone
    ]
)


class Block(NamedTuple):
    """Some rows of a part: those among `start` … `stop` that `kept` marks."""

    file: Path
    start: int
    kept: Bool[np.ndarray, " rows"]


def plan_shards(copies: list[tuple[Part, list[Bool[np.ndarray, " _"]]]]) -> list[list[Block]]:
    """Spread rows over shards: in order in one, or, if there are more, blocks drawn from the whole corpus.

    Args:
        copies: for each part, which rows each of its copies in an epoch has; copies are spread over the shards.
    """
    rows = sum(int(mask.sum()) for _, masks in copies for mask in masks)
    places = [(part, masks, start) for part, masks in copies for start in range(0, part.rows, BLOCK_ROWS)]
    blocks = [
        [Block(part.file, start, mask[start : start + BLOCK_ROWS]) for mask in masks] for part, masks, start in places
    ]
    count = -(-rows // SHARD_ROWS)
    if count <= 1:
        return [list(chain.from_iterable(blocks))]
    order = np.random.default_rng(0).permutation(len(blocks))
    share = np.empty(len(blocks))  # of the shards that lie before a block
    share[order] = np.arange(len(blocks)) / len(blocks)
    spread = [
        ((share[at] + copy / len(some)) % 1.0, block)
        for at, some in enumerate(blocks)
        for copy, block in enumerate(some)
    ]
    ranked = [spread[at][1] for at in np.argsort([key for key, _ in spread], kind="stable")]
    return [[ranked[at] for at in group] for group in np.array_split(np.arange(len(ranked)), count)]


def write_shard(blocks: list[Block], file: Path) -> tuple[int, str]:
    """Write the rows of these blocks; return their number and a digest of their content."""
    with suppress(OSError, pa.ArrowInvalid):  # it is not there, or was cut, as by an interrupted copy
        return describe_shard(file)
    with replacing(file) as stream, ipc.new_file(stream, SHARD) as writer:
        for some in batched(blocks, WRITTEN_BLOCKS):
            table = pa.concat_tables(map(kept_rows, some)).combine_chunks()
            writer.write_table(pa.table([*table.columns[:2], lists_of_one(table["reference"])], schema=SHARD))
    return describe_shard(file)


def kept_rows(block: Block) -> pa.Table:
    """Return the texts of the rows that a block keeps; its file is not held open, for a shard reads hundreds."""
    texts = read_table(block.file).select(["source", "target", "reference"])
    return texts.slice(block.start, len(block.kept)).filter(pa.array(block.kept))


def lists_of_one(texts: pa.ChunkedArray) -> pa.ListArray:
    """Return a list of one text for each text, and null for null."""
    texts = texts.combine_chunks()
    missing = texts.is_null()
    offsets = np.cumsum(np.concatenate([[0], ~missing.to_numpy(zero_copy_only=False)])).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), texts.drop_null(), mask=missing)


def describe_shard(file: Path) -> tuple[int, str]:
    """Return the number of rows and a digest of their texts, which does not depend on how the file holds them."""
    table, digest = read_table(file), hashlib.sha256()
    references = table["references"]
    texts = [table["source"], table["target"], compute.list_flatten(references)]
    for lengths in (*map(compute.binary_length, texts), compute.list_value_length(references).fill_null(0)):
        for chunk in lengths.chunks:
            digest.update(chunk.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    for side in texts:
        for chunk in side.chunks:
            digest.update(text_bytes(chunk))
    return len(table), digest.hexdigest()


def text_bytes(texts: pa.LargeStringArray) -> memoryview:
    """Return the bytes of all texts, one after another."""
    _, offsets, data = texts.buffers()
    if data is None:
        return memoryview(b"")
    fences = np.frombuffer(offsets, np.int64)[[texts.offset, texts.offset + len(texts)]]
    return memoryview(data)[fences[0] : fences[1]]


def num_shared_targets(given: Path, train: list[Path]) -> int:
    """Return how many rows of a shard have a target that is also in the shards of train."""
    ours = read_table(given)["target"].combine_chunks()
    theirs = (read_table(file)["target"] for file in train)
    found = [texts.filter(compute.is_in(texts, value_set=ours)).unique() for texts in theirs]
    return int(compute.is_in(ours, value_set=pa.concat_arrays(found)).true_count)


def write_given(parts: list[Part], file: Path) -> None:
    """Write all rows in order, each with its own references, even equal ones: so others score, too.

    An empty further reference counts as none.
    """
    rows = (
        (pair.source, pair.target, [pair.reference, *filter(None, others or [])])
        for part in parts
        for pair, others in zip(read_pairs(part), read_table(part.file)["others"].to_pylist(), strict=True)
    )
    write_rows(rows, file)


def write_rows(rows: Iterable[tuple[str, str, list[str]]], file: Path) -> None:
    with replacing(file) as stream, ipc.new_file(stream, SHARD) as writer:
        for some in batched(rows, BLOCK_ROWS):
            columns = list(zip(*some, strict=True))
            columns[2] = tuple(None if refs == [t] else refs for t, refs in zip(columns[1], columns[2], strict=True))
            writer.write_table(pa.table([list(texts) for texts in columns], schema=SHARD))


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while some := list(islice(iterator, size)):
        yield some


def shard_file(folder: Path, split: str, number: int) -> Path:
    return folder / split / f"{number:05d}.arrow"
