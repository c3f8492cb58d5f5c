"""Rows of a corpus of any size that are equal to an earlier one: hashes are sorted, one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt64

from seq2seq_attn.data.store.part import Part, column

PARTITION_ROWS = 1 << 22  # hashes that are sorted at once


def first_occurrences(parts: list[Part], folder: Path) -> list[Bool[np.ndarray, " _"]]:
    """Return for each part which of its rows are not equal to an earlier one, by the hashes of the pairs."""
    rows = sum(part.rows for part in parts)
    new = np.ones(rows, bool)
    starts = np.cumsum([0, *(part.rows for part in parts)])
    bits = max(0, (rows // PARTITION_ROWS).bit_length())
    if not bits:
        partitions: Any = [(np.concatenate([column(part, "pair_hash") for part in parts]), np.arange(rows))]
    else:
        partitions = partitioned(parts, starts, bits, folder)
    for pair_hashes, positions in partitions:
        order = np.argsort(pair_hashes, kind="stable")  # rows with the same hash keep their order
        again = np.flatnonzero(pair_hashes[order][1:] == pair_hashes[order][:-1]) + 1
        new[positions[order[again]]] = False
    return np.split(new, starts[1:-1])


def partitioned(
    parts: list[Part], starts: np.ndarray, bits: int, folder: Path
) -> Iterator[tuple[UInt64[np.ndarray, " some"], np.ndarray]]:
    """Yield hashes with the same first bits, and the rows they belong to, by way of one file for each."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:05d}.partition" for number in range(1 << bits)]
    with ExitStack() as opened:
        streams = [opened.enter_context(file.open("wb", 1 << 16)) for file in files]
        for part, start in zip(parts, starts, strict=False):
            pair_hashes = column(part, "pair_hash")
            records = np.stack([pair_hashes, np.arange(start, start + part.rows).astype(np.uint64)], axis=1)
            buckets = (pair_hashes >> np.uint64(64 - bits)).astype(np.int64)
            order = np.argsort(buckets, kind="stable")
            fences = np.searchsorted(buckets[order], np.arange((1 << bits) + 1))
            for stream, begin, end in zip(streams, fences[:-1], fences[1:], strict=True):
                stream.write(records[order[begin:end]].tobytes())
    for file in files:
        records = np.fromfile(file, np.uint64).reshape(-1, 2)
        file.unlink()
        yield records[:, 0].copy(), records[:, 1].astype(np.int64)
