"""Sets that are held out of the training pairs: the sources of the smallest hashes, with all their translations."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, UInt64

from seq2seq_attn.data.corpus import Pair
from seq2seq_attn.data.splitting import HELD_OUT, MOST_HELD_OUT, held_out_sizes
from seq2seq_attn.data.store.part import Part, all_hashes, column, read_pairs
from seq2seq_attn.data.store.shard import shard_file, write_rows

log = logging.getLogger(__name__)


@final
class HeldOut(NamedTuple):
    """The sets to hold out of the training pairs, with their number of source sentences; None: `held_out_sizes`.

    Attributes:
        seed: of the choice, which depends on it and on the sources alone, not on their order.
    """

    sentences: dict[str, int | None]
    seed: int

    @classmethod
    def of(cls, sentences: dict[str, int | None], given: Container[str], seed: int) -> HeldOut:
        """Return the sets to hold out of "train", those that no file gives; warn of numbers that have no effect."""
        for split, size in sentences.items():
            if size is not None and split in given:
                log.warning(
                    f"data.{split}_sentences={size} changes nothing, since {split} is given and not held out of train; "
                    "give one of the two"
                )
        missing = [split for split, size in sentences.items() if "train" in given and split not in given and size != 0]
        return cls({split: sentences[split] for split in missing}, seed)


def hold_out(
    train: list[Part],
    trained: list[Bool[np.ndarray, " _"]],
    unseen: UInt64[np.ndarray, " _"],
    held_out: HeldOut,
    folder: Path,
    counts: dict[str, dict[str, int]],
) -> list[Bool[np.ndarray, " _"]]:
    """Write the held-out splits, count their pairs, and return which rows are left to train on.

    Args:
        unseen: hashes of the sources of the other splits, which are not held out once more.
    """
    chosen, num_sources = choose_sources(train, without(train, trained, unseen), held_out)
    for split, sources in chosen.items():
        few = len(sources) < (held_out.sentences[split] or MOST_HELD_OUT)
        share = f" ({len(sources) / num_sources:.0%} of the sources)" if few else ""
        taken = write_held_out(train, trained, sources, shard_file(folder, split, 0))
        counts[split] = {f"{HELD_OUT}{share}": taken}
    return without(train, trained, np.concatenate(list(chosen.values())))


def choose_sources(
    parts: list[Part], free: list[Bool[np.ndarray, " _"]], held_out: HeldOut
) -> tuple[dict[str, UInt64[np.ndarray, " _"]], int]:
    """Return the hashes of the sources of each held-out set, the smallest in order, and the number of all sources.

    Larger numbers than those that matter are not counted.
    """
    enough = 10 * MOST_HELD_OUT + sum(size or 0 for size in held_out.sentences.values()) + 1
    smallest = np.zeros(0, np.uint64)
    for part, mask in zip(parts, free, strict=True):
        smallest = np.unique(np.concatenate([smallest, column(part, "source_hash")[mask]]))[:enough]
    sizes = held_out_sizes(held_out.sentences, len(smallest))
    ends = np.cumsum([0, *sizes.values()]).tolist()
    return {name: smallest[start:end] for name, (start, end) in zip(sizes, pairwise(ends), strict=True)}, len(smallest)


def write_held_out(parts: list[Part], kept: list[Bool[np.ndarray, " _"]], chosen: np.ndarray, file: Path) -> int:
    """Write one row for each chosen source, in this order, with all its translations; return the number of these."""
    versions: dict[str, list[Pair]] = {}
    by_hash: dict[int, str] = {}
    for part, mask in zip(parts, kept, strict=True):
        source_hashes = column(part, "source_hash")
        rows = np.flatnonzero(mask & np.isin(source_hashes, chosen))
        for pair, key in zip(read_pairs(part, rows), source_hashes[rows].tolist(), strict=True):
            versions.setdefault(pair.source, []).append(pair)
            by_hash.setdefault(key, pair.source)
    first = [versions[by_hash[key]] for key in chosen.tolist()]
    write_rows([(pairs[0].source, pairs[0].target, unique(pair.reference for pair in pairs)) for pairs in first], file)
    return sum(len(pairs) for pairs in first)


def unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def without(
    parts: list[Part], kept: list[Bool[np.ndarray, " _"]], sources: UInt64[np.ndarray, " sources"]
) -> list[Bool[np.ndarray, " _"]]:
    """Return `kept` without the rows that have one of these sources."""
    pairs = zip(parts, kept, strict=True)
    return [mask & ~np.isin(column(part, "source_hash"), sources) for part, mask in pairs]


def num_shared(parts: list[Part], train: list[Part], trained: list[Bool[np.ndarray, " _"]]) -> int:
    """Return how many rows have a source that is also among the trained rows."""
    ours = all_hashes(parts)
    shared = np.zeros(len(ours), bool)
    for part, mask in zip(train, trained, strict=True):
        shared |= np.isin(ours, column(part, "source_hash")[mask])
    return int(shared.sum())
