"""Preparation of a corpus of any size: clean it in parts, drop duplicates, hold sets out, and write shards of text.

A process holds one chunk, one shard or one partition of the hashes in memory. Every step writes a whole file or none,
so a preparation that was killed continues with the files that are there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, UInt64
from pyarrow import compute, ipc

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Pair, hashes
from seq2seq_attn.data.splitting import HELD_OUT, MOST_HELD_OUT, check_lengths, held_out_sizes
from seq2seq_attn.data.store.pair_source import PairSource, RawChunk
from seq2seq_attn.distributed.workers import Workers
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing
from seq2seq_attn.text import printable

log = logging.getLogger(__name__)

SHARD_ROWS = 1 << 19  # pairs that are sorted by length together; a corpus of one shard keeps its order
BLOCK_ROWS = 1 << 11  # neighbours that stay together when a larger corpus is spread over its shards
WRITTEN_BLOCKS = 32  # blocks that are written to a shard at once
PARTITION_ROWS = 1 << 22  # hashes that are sorted at once
MOST_REJECTED_LINES = 1_000  # of rejected.tsv
IN_EPOCH = " in an epoch"  # a count of pairs after the weights of a mixture
MOST_WEIGHT = 1_000  # of a temperature, as of a weight that is given

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
SHARD = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("references", pa.list_(pa.large_string())),  # null: the target alone
    ]
)


@final
class HeldOut(NamedTuple):
    """The sets to hold out of the training pairs, with their number of source sentences; None: `held_out_sizes`.

    Attributes:
        seed: of the choice, which depends on it and on the sources alone, not on their order.
    """

    sentences: dict[str, int | None]
    seed: int


@final
class Mixture(NamedTuple):
    """How often the pairs of a corpus occur in an epoch, by its name.

    Attributes:
        weights: 2.5 is all pairs twice, and half of them a third time.
        seed: of the choice of that half, which depends on it and on the pairs alone, not on their order.
        temperature: T, by which corpora without a weight get one; None: 1. Arivazhagan et al. 2019, arXiv:1907.05019;
            fairseq's `--sampling-temperature`.
    """

    weights: dict[str, int | float]
    seed: int
    temperature: float | None = None

    def weights_of(self, pairs: dict[str, int]) -> dict[str, int | float]:
        """Return the weight of each corpus by its number of pairs: its own, or (n / n_max)^(1/T - 1), at most 1,000.

        A share of an epoch is then proportional to n^(1/T).
        """
        power = 0.0 if self.temperature is None else 1.0 / self.temperature - 1.0
        largest = max([1, *pairs.values()])
        by_size = {name: min((max(1, n) / largest) ** power, MOST_WEIGHT) for name, n in pairs.items()}
        return {name: self.weights.get(name, weight) for name, weight in by_size.items()}


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
    if file.exists():
        return open_part(file)
    parsed = source.parse(chunk)
    pairs, steps = cleaning.normalize(parsed.pairs)
    counts = {"lines rejected": len(parsed.rejected)} | steps
    if filters:
        pairs, dropped = cleaning.filter(pairs)
        counts |= dropped
    else:
        check_lengths(split, pairs, chunk.first, source.files)
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


def weigh(
    parts: list[Part], kept: list[Bool[np.ndarray, " _"]], mixture: Mixture | None, counts: dict[str, int]
) -> list[tuple[Part, list[Bool[np.ndarray, " _"]]]]:
    """Return which rows each copy of a part in an epoch has, and count the pairs of each corpus of a mixture.

    Raises:
        UserError: if no pair is left.
    """
    if mixture is None:
        return [(part, [mask]) for part, mask in zip(parts, kept, strict=True)]
    factor, summand = np.random.default_rng(mixture.seed).integers(1 << 64, size=2, dtype=np.uint64)
    there = dict.fromkeys((part.corpus for part in parts), 0)
    for part, mask in zip(parts, kept, strict=True):
        there[part.corpus] += int(mask.sum())
    weights = mixture.weights_of(there)
    copies, pairs = [], dict.fromkeys(there, 0)
    for part, mask in zip(parts, kept, strict=True):
        fraction, whole = math.modf(weights[part.corpus])
        masks = [mask] * int(whole)
        if fraction:
            drawn = column(part, "pair_hash") * (factor | np.uint64(1)) + summand  # modulo 2**64
            masks.append(mask & (drawn < np.uint64(fraction * 2.0**64)))
        copies.append((part, masks))
        pairs[part.corpus] += sum(int(some.sum()) for some in masks)
    epoch = sum(pairs.values())
    if not epoch:
        raise UserError(f"data.weights leaves no pair of {', '.join(pairs)} to train on; give larger weights")
    for name, number in pairs.items():
        counts[f"pairs of {name}{IN_EPOCH} (weight {weights[name]:g}, {number / epoch:.1%})"] = number
    return copies


def write_shard(blocks: list[Block], file: Path) -> tuple[int, str]:
    """Write the rows of these blocks; return their number and a digest of their content."""
    if not file.exists():
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


def read_pairs(part: Part, rows: np.ndarray | None = None) -> Iterator[Pair]:
    """Yield the pairs of a part, or of some of its rows."""
    table = read_table(part.file).select(["source", "target", "reference"])
    for batch in (table if rows is None else table.take(rows)).to_batches():
        for source, target, reference in zip(*(texts.to_pylist() for texts in batch.columns), strict=True):
            yield Pair(source, target, target if reference is None else reference)


def unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


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
    """Write the shards of all splits to `folder`; return their rows and digests, and the counts of the cleaning.

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
        rejected: list[tuple[str, int, str]] = []
        parts[split] = []
        for part in workers.map(clean_chunk, tasks):
            rejected += part.rejected[: MOST_REJECTED_LINES - len(rejected)]
            parts[split].append(part._replace(rejected=[], corpus=corpora[len(parts[split])]))
        read += sum(source.size for source in files)
        counts[split] = total(part.counts for part in parts[split])
        reject(folder, split, rejected, counts[split], max_rejected)
        if not counts[split]["pairs read"]:
            names = ", ".join(str(file) for source in files for file in source.files)
            or_none = "" if split == "train" else ", or none"
            raise UserError(f"{names} has no text for the split {split}; give a file or a split that has some{or_none}")
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
        for split in given:
            counts[split]["sources also in train"] = num_shared(parts[split], train, trained)
        plans = plan_shards(weigh(train, trained, mixture, counts[label]))
        writes = ((blocks, shard_file(folder, "train", number)) for number, blocks in enumerate(plans))
        shards["train"] = list(workers.map(write_shard, writes))
    order = [split for split in dict.fromkeys(["val", "test", *given]) if split in [*given, *held_out.sentences]]
    shards |= {split: [describe_shard(shard_file(folder, split, 0))] for split in order}
    shutil.rmtree(temporary)
    report = {f"{split}: {step}": count for split, steps in counts.items() for step, count in steps.items()}
    return {"shards": shards, "counts": report}


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


def part_file(folder: Path, split: str, number: int) -> Path:
    return folder / split / f"{number:06d}.arrow"


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


def reject(folder: Path, split: str, rejected: list[tuple[str, int, str]], counts: dict[str, int], most: float) -> None:
    """Write the first rejected lines to a file, or drop their count if there are none.

    Raises:
        UserError: if more than the share `most` of the lines is rejected.
    """
    if not rejected:
        del counts["lines rejected"]
        return
    list_file = folder / f"rejected_{split}.tsv"
    with replacing(list_file) as stream:
        for file, number, reason in rejected:
            stream.write(f"{printable(file)}\t{number}\t{reason}\n".encode())
    check_rejected(folder, split, counts, most)


def check_rejected(folder: Path, split: str, counts: dict[str, int], most: float) -> None:
    """Warn of rejected lines, which a file lists.

    Raises:
        UserError: if they are more than the share `most` of all lines.
    """
    list_file = folder / f"rejected_{split}.tsv"
    bad, lines = counts["lines rejected"], counts["lines rejected"] + counts["pairs read"]
    file, number, reason = list_file.read_text("utf-8").partition("\n")[0].split("\t", 2)
    listed = f"{f'the first {MOST_REJECTED_LINES:,} ' if bad > MOST_REJECTED_LINES else ''}listed in {list_file}"
    if bad > most * lines:
        raise UserError(
            f"{file}, line {number}: {reason}; {bad:,} of {lines:,} lines of {split} are rejected, more than "
            f"data.max_rejected={most:g} ({listed}): fix or remove them"
        )
    log.warning(f"{bad:,} lines of {split} are rejected, such as {file}, line {number}: {reason} ({listed})")


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


def shard_file(folder: Path, split: str, number: int) -> Path:
    return folder / split / f"{number:05d}.arrow"
