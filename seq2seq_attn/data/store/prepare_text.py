"""Preparation of a corpus of any size: clean it in parts, drop duplicates, hold sets out, and write shards of text.

A process holds one chunk, one shard or one partition of the hashes in memory. Every step writes a whole file or none,
so a preparation that was killed continues with the files that are there.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.store.corpus_weights import Mixture, weigh
from seq2seq_attn.data.store.duplicates import first_occurrences
from seq2seq_attn.data.store.held_out import HeldOut, hold_out, num_shared
from seq2seq_attn.data.store.pair_source import PairSource, RawChunk
from seq2seq_attn.data.store.part import Part, all_hashes, clean_chunk, part_file
from seq2seq_attn.data.store.rejected import MOST_REJECTED_LINES, reject
from seq2seq_attn.data.store.shard import (
    describe_shard,
    num_shared_targets,
    plan_shards,
    shard_file,
    write_given,
    write_shard,
)
from seq2seq_attn.distributed.workers import Workers
from seq2seq_attn.errors import UserError


def prepare_text(
    sources: dict[str, list[PairSource]],
    cleaning: Cleaning,
    held_out: HeldOut,
    folder: Path,
    *,
    workers: Workers,
    max_rejected: float,
    advance: Callable[[int], None],
    mixture: Mixture | None = None,
) -> dict[str, Any]:
    """Write the shards of all splits to `folder`; return their rows, digests and shared targets, and the counts.

    Training pairs are cleaned; given validation and test pairs are only normalised, so that scores remain comparable.

    Args:
        sources: files by split; without "train", nothing is held out.
        max_rejected: largest share of lines that may be rejected.
        advance: called with the bytes of all files that have been read so far.
        mixture: the weights of the corpora that the sources of "train" name; None: each pair occurs once.

    Raises:
        UserError: if a file cannot be read, too many lines are rejected, or nothing is left to train on.
    """
    temporary = folder / "parts"
    parts: dict[str, list[Part]] = {}
    counts: dict[str, dict[str, int]] = {}
    read = 0
    for split, files in sources.items():
        corpora: list[str] = []
        tasks = (
            (source, chunk, cleaning, split == "train", split, held_out.seed, part_file(temporary, split, number))
            for number, (source, chunk) in enumerate(all_chunks(files, advance, read, corpora))
        )
        parts[split], rejected = clean_parts(workers, tasks, corpora)
        read += sum(source.size for source in files)
        counts[split] = total(part.counts for part in parts[split])
        reject(folder, split, rejected, counts[split], max_rejected)
        check_has_text(split, files, parts[split], counts[split])
    given = [split for split in parts if split != "train"]
    label = "all" if list(parts) == ["train"] else "train"
    counts = {label if split == "train" else split: steps for split, steps in counts.items()}
    shards: dict[str, list[tuple[int, str]]] = {}
    for split in given:
        write_given(parts[split], shard_file(folder, split, 0))
    if "train" in parts:
        train, trained = parts["train"], keep_pairs(parts["train"], cleaning, counts[label], temporary)
        if held_out.sentences:
            unseen = np.unique(np.concatenate([np.zeros(0, np.uint64), *(all_hashes(parts[name]) for name in given)]))
            trained = hold_out(train, trained, unseen, held_out, folder, counts)
        copies = weigh(train, trained, mixture, counts[label])
        in_epoch = [masks[0] for _, masks in copies]  # the first copy has all rows that the others have
        for split in given:
            counts[split]["sources also in train"] = num_shared(parts[split], train, in_epoch)
        plans = plan_shards(copies)
        writes = ((blocks, shard_file(folder, "train", number)) for number, blocks in enumerate(plans))
        shards["train"] = list(workers.map(write_shard, writes))
    order = [split for split in dict.fromkeys(["val", "test", *given]) if split in [*given, *held_out.sentences]]
    shards |= {split: [describe_shard(shard_file(folder, split, 0))] for split in order}
    shared = {}
    if "train" in shards and not any(source.has_one_side for source in sources["train"]):
        train_files = [shard_file(folder, "train", number) for number in range(len(shards["train"]))]
        shared = {split: num_shared_targets(shard_file(folder, split, 0), train_files) for split in order}
    shutil.rmtree(temporary)
    report = {f"{split}: {step}": count for split, steps in counts.items() for step, count in steps.items()}
    return {"shards": shards, "counts": report, "shared_targets": shared}


def clean_parts(
    workers: Workers, tasks: Iterable[tuple[Any, ...]], corpora: list[str]
) -> tuple[list[Part], list[tuple[str, int, str]]]:
    """Return the cleaned parts of a split, and the first lines that were rejected.

    Args:
        tasks: arguments of `clean_chunk`.
        corpora: of each part, known once its task has been made.
    """
    parts: list[Part] = []
    rejected: list[tuple[str, int, str]] = []
    for part in workers.map(clean_chunk, tasks):
        rejected += part.rejected[: MOST_REJECTED_LINES - len(rejected)]
        parts.append(part._replace(rejected=[], corpus=corpora[len(parts)]))
    return parts, rejected


def check_has_text(split: str, files: list[PairSource], parts: list[Part], counts: dict[str, int]) -> None:
    """Refuse files without a pair, and validation and test files of which nothing is left."""
    if not counts["pairs read"] or (split != "train" and not any(part.rows for part in parts)):
        names = ", ".join(str(file) for source in files for file in source.files)
        or_none = "" if split == "train" else ", or none"
        raise UserError(f"{names} has no text for the split {split}; give a file or a split that has some{or_none}")


def keep_pairs(
    train: list[Part], cleaning: Cleaning, counts: dict[str, int], folder: Path
) -> list[Bool[np.ndarray, " _"]]:
    """Return which rows of each part are trained on, were nothing held out, and count the duplicates.

    Raises:
        UserError: if there are none.
    """
    kept = [np.ones(part.rows, bool) for part in train]
    if cleaning.deduplicate:
        kept = first_occurrences(train, folder)
        counts["dropped, duplicate"] = sum(int((~new).sum()) for new in kept)
    if not any(new.any() for new in kept):
        reasons = "; ".join(f"{count} {step}" for step, count in counts.items() if count)
        raise UserError(
            f"no sentence pair is left to train on after cleaning ({reasons}); check data.path or loosen data.cleaning"
        )
    return kept


def all_chunks(
    files: list[PairSource], advance: Callable[[int], None], read: int, corpora: list[str]
) -> Iterator[tuple[PairSource, RawChunk]]:
    """Yield the chunks of all files, and append the corpus of each to `corpora`."""
    for source in files:
        for chunk in source.chunks():
            corpora.append(source.corpus)
            yield source, chunk
            advance(read + chunk.read)
        read += source.size


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    summed: Counter[str] = Counter()
    for some in counts:
        summed.update(some)
    return dict(summed)
