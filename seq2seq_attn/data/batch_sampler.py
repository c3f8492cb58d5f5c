"""Batches of similar cost: pairs sorted by length and cut at a budget of padded tokens, equally many on each device."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float, Int, Int64
from torch.utils.data import Sampler

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing

BUCKET_WIDTHS = (1, 2, 4, 8)  # small corpora need wide buckets; narrow ones would mix targets of all lengths


class Lengths(NamedTuple):
    """Lengths of the pairs of a shard, in tokens, without begin and end tokens."""

    source: Int[np.ndarray, " pairs"]
    target: Int[np.ndarray, " pairs"]


class ShardPlan(NamedTuple):
    """How a shard is cut into batches, the same in every epoch.

    Attributes:
        cuts: where each batch begins among the sorted pairs, and the end.
        padded, real: tokens of all batches, with and without padding, specials included.
        largest: number and size of the batch of most padded tokens, and of the batch of most tokens times length.
    """

    cuts: Int64[np.ndarray, " fences"]
    padded: int
    real: int
    largest: tuple[tuple[int, int], tuple[int, int]]


@final
class TokenBatchSampler(Sampler[list[int]]):
    """Lists of row numbers: each row occurs once, and every device gets the same number of lists.

    Pairs are sorted by length within their shard. The sorted lengths, and therefore the cuts, are the same in every
    epoch. (seed, epoch) determines the order of the shards, of pairs of equal length and of the batches of a shard. No
    more than one shard is in memory at a time.

    Args:
        shards: the lengths of each shard, read when they are asked for.
        starts: number of the first row of each shard, and the number of all rows.
        batch_tokens: most padded source and target tokens in a batch, specials included; a longer pair forms a
            batch of its own.
        batch_sentences: most pairs in a batch, in place of or in addition to `batch_tokens`.
        shuffle: False: the same order, by length, in every epoch.
        spread: unless they are shuffled, read the batches in one random order, the same for every seed and epoch, so
            that the first few are of all lengths.
        single_device_batches: for evaluation: form the batches that a single device would have, so that sums over
            them agree to the last digit; a device without a last batch gets an empty list.
        rows: use only these rows, in rising order; None: all.
        cache: folder in which the cuts are kept, for exactly these lengths; None: none.

    Raises:
        UserError: if a limit is less than 1, or the devices cannot get the same number of batches.
    """

    def __init__(
        self,
        shards: Sequence[Lengths],
        *,
        batch_tokens: int | None = None,
        batch_sentences: int | None = None,
        shuffle: bool,
        spread: bool = False,
        seed: int,
        rank: int = 0,
        num_replicas: int = 1,
        single_device_batches: bool = False,
        rows: Int[np.ndarray, " some"] | None = None,
        starts: Int64[np.ndarray, " fences"] | None = None,
        cache: Path | None = None,
    ) -> None:
        check_limit("batch_tokens", batch_tokens)
        check_limit("batch_sentences", batch_sentences)
        self.shards, self.rows = shards, rows
        self.starts = np.cumsum([0, *(len(shard.source) for shard in shards)]) if starts is None else starts
        self.batch_tokens, self.batch_sentences = batch_tokens, batch_sentences
        self.shuffle, self.spread, self.seed, self.epoch = shuffle, spread, seed, 0
        self._start = (0, 0)
        self.rank, self.num_replicas, self.single_device_batches = rank, num_replicas, single_device_batches
        total = self.starts[-1] if rows is None else len(rows)
        if total < num_replicas and not single_device_batches:
            raise UserError(f"{total} sentence pairs cannot be shared by {num_replicas} devices; use trainer.devices=1")
        self._width, self._plans = self._plan() if cache is None else self._cached_plan(cache)
        self.padding_share = 1.0 - sum(plan.real for plan in self._plans) / sum(plan.padded for plan in self._plans)

    @property
    def sampler(self) -> TokenBatchSampler:
        """Return self: Lightning calls `set_epoch` on `batch_sampler.sampler`, not on the batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def start_at(self, epoch: int, batch: int) -> None:
        """Skip the first `batch` batches of `epoch`, which a stopped run has read; later epochs are complete."""
        self.epoch, self._start = epoch, (epoch, batch)

    def __len__(self) -> int:
        """Return the number of batches in a complete epoch, which is what progress is measured against."""
        return -(-self.num_batches // self.num_replicas)

    @property
    def num_batches(self) -> int:
        """Number of batches of all devices."""
        return sum(len(plan.cuts) - 1 for plan in self._plans)

    @property
    def fingerprint(self) -> int:
        """CRC-32 of where the shards are cut into batches."""
        checksum = 0
        for plan in self._plans:
            checksum = zlib.crc32(plan.cuts.tobytes(), checksum)
        return checksum

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this device; those of all shards are dealt out to the devices in turn."""
        order = np.arange(len(self.shards))
        if self.shuffle and len(order) > 1:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(order))
        epoch, start = self._start
        to_skip = start if self.epoch == epoch else 0
        dealt = 0  # batches of the shards before
        for number in order.tolist():
            batches = len(self._plans[number].cuts) - 1
            mine = np.arange((self.rank - dealt) % self.num_replicas, batches, self.num_replicas)
            dealt += batches
            if to_skip >= len(mine):
                to_skip -= len(mine)
                continue
            mine, to_skip = mine[to_skip:], 0
            if self.spread and not self.shuffle:
                mine = np.random.default_rng(number).permutation(batches)[mine]
            yield from self._shard_batches(number, mine, shuffle=self.shuffle)
        if 0 < dealt % self.num_replicas <= self.rank:  # the last round ends before this device
            yield []

    def largest(self) -> list[list[int]]:
        """Return the rows of the batch of most padded tokens, and of that of most tokens times length."""
        batches: list[list[int]] = []
        for kind in (0, 1):
            sizes = [plan.largest[kind][1] for plan in self._plans]
            shard = sizes.index(max(sizes))
            batches += self._shard_batches(shard, np.array([self._plans[shard].largest[kind][0]]), shuffle=False)
        return batches if batches[0] != batches[1] else batches[:1]

    def _shard_batches(self, number: int, chosen: Int64[np.ndarray, " some"], *, shuffle: bool) -> Iterator[list[int]]:
        """Yield the rows of some batches of a shard; with `shuffle`, their numbers are those in a random order."""
        rows, source, target = self._shard(number)
        cuts = self._plans[number].cuts
        if shuffle:
            several = [number] if len(self.shards) > 1 else []
            random = np.random.default_rng([self.seed, self.epoch, *several])
            order = sort_by_length(source, target, self._width, random.random(len(source)))
            chosen = random.permutation(len(cuts) - 1)[chosen]
        else:
            order = sort_by_length(source, target, self._width)
        for batch in chosen.tolist():
            yield rows[order[cuts[batch] : cuts[batch + 1]]].tolist()

    def _shard(
        self, number: int
    ) -> tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"]]:
        """Return the rows of a shard that are used, and their lengths with the end or begin token."""
        source, target = self.shards[number]
        first, end = self.starts[number : number + 2]
        rows = np.arange(first, end)
        if self.rows is not None:
            rows = self.rows[slice(*np.searchsorted(self.rows, (first, end)))]
        inside = rows - first
        return rows, np.asarray(source[inside], np.int64) + 1, np.asarray(target[inside], np.int64) + 1

    def _plan(self) -> tuple[int, list[ShardPlan]]:
        """Return the width of the buckets that pads the first shard least, and the plans of all shards."""
        _, source, target = self._shard(0)
        plans = {width: self._plan_shard(source, target, width) for width in BUCKET_WIDTHS}
        width = min(plans, key=lambda width: plans[width].padded)
        rest = (self._shard(number)[1:] for number in range(1, len(self.shards)))
        return width, [plans[width], *(self._plan_shard(*lengths, width) for lengths in rest)]

    def _plan_shard(
        self, source: Int64[np.ndarray, " pairs"], target: Int64[np.ndarray, " pairs"], width: int
    ) -> ShardPlan:
        order = sort_by_length(source, target, width)
        source, target = source[order], target[order]
        cuts = cut(source, target, self.batch_tokens, self.batch_sentences)
        cuts = cuts if self.single_device_batches else even_out(cuts, source, target, self.num_replicas)
        tokens = padded_tokens(cuts, source, target)
        area = tokens * (tokens // np.diff(cuts))
        largest = tuple((int(size.argmax()), int(size.max())) for size in (tokens, area))
        return ShardPlan(cuts, int(tokens.sum()), int(source.sum() + target.sum()), largest)  # type: ignore[arg-type]

    def _cached_plan(self, folder: Path) -> tuple[int, list[ShardPlan]]:
        """Return the plan of these lengths, limits and devices from the cache, where it is written if it is missing."""
        limits = [self.batch_tokens, self.batch_sentences, self.num_replicas, self.single_device_batches]
        file = folder / f"batches-{'-'.join(map(str, limits))}.npz"
        try:
            with np.load(file) as cached:
                cuts = np.split(cached["cuts"], cached["ends"][:-1])
                figures = zip(cuts, cached["figures"].tolist(), strict=True)
                plans = [
                    ShardPlan(shard_cuts, padded, real, ((most_tokens, tokens), (most_area, area)))
                    for shard_cuts, (padded, real, most_tokens, tokens, most_area, area) in figures
                ]
                return int(cached["width"]), plans
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            pass  # not there yet, or damaged
        width, plans = self._plan()
        rows = [(plan.padded, plan.real, *chain(*plan.largest)) for plan in plans]
        ends = np.cumsum([len(plan.cuts) for plan in plans])
        with suppress(UserError, OSError), replacing(file) as stream:  # a cache that may only be read, or a full disk
            np.savez(stream, width=width, ends=ends, figures=rows, cuts=np.concatenate([p.cuts for p in plans]))
        return width, plans


def sort_by_length(
    source: Int64[np.ndarray, " pairs"],
    target: Int64[np.ndarray, " pairs"],
    width: int,
    tie_break: Float[np.ndarray, " pairs"] | None = None,
) -> Int64[np.ndarray, " pairs"]:
    """Sort by source length in buckets of this width, then by target length, alternately rising and falling."""
    bucket = source // width
    snake = np.where(bucket % 2 == 0, target, -target)
    keys = (source, snake, bucket)
    return np.lexsort(keys if tie_break is None else (tie_break, *keys))


def check_limit(name: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UserError(f"{name}={limit} must be at least 1; use {name}={4096 if name == 'batch_tokens' else 64}")


def cut(
    source: Int64[np.ndarray, " pairs"],
    target: Int64[np.ndarray, " pairs"],
    batch_tokens: int | None,
    batch_sentences: int | None,
) -> Int64[np.ndarray, " fences"]:
    """Return where each batch begins, and the end: a batch takes pairs in order while it is within both limits."""
    cuts, begin = [0], 0
    while begin < len(source):
        most = len(source) - begin
        if batch_sentences is not None:
            most = min(most, batch_sentences)
        if batch_tokens is not None:  # longer pairs than the first only make it less
            most = min(most, max(1, batch_tokens // int(source[begin] + target[begin])))
            longest = np.maximum.accumulate(source[begin : begin + most])
            longest = longest + np.maximum.accumulate(target[begin : begin + most])
            fits = np.arange(1, most + 1) * longest <= batch_tokens
            most = most if fits.all() else max(1, int(fits.argmin()))
        begin += most
        cuts.append(begin)
    return np.array(cuts)


def even_out(
    cuts: Int64[np.ndarray, " fences"],
    source: Int64[np.ndarray, " pairs"],
    target: Int64[np.ndarray, " pairs"],
    num_replicas: int,
) -> Int64[np.ndarray, " more_fences"]:
    """Halve the largest batches until their number is a multiple of the number of devices."""
    while (len(cuts) - 1) % num_replicas:
        tokens = np.where(np.diff(cuts) > 1, padded_tokens(cuts, source, target), 0)
        largest = int(tokens.argmax())
        if tokens[largest] == 0:
            raise UserError(
                f"{len(cuts) - 1} batches of one pair each cannot be shared equally by {num_replicas} devices; "
                "use a larger batch_tokens or trainer.devices=1"
            )
        cuts = np.insert(cuts, largest + 1, (cuts[largest] + cuts[largest + 1]) // 2)
    return cuts


def padded_tokens(
    cuts: Int64[np.ndarray, " fences"], source: Int64[np.ndarray, " pairs"], target: Int64[np.ndarray, " pairs"]
) -> Int64[np.ndarray, " batches"]:
    starts = cuts[:-1]
    return np.diff(cuts) * (np.maximum.reduceat(source, starts) + np.maximum.reduceat(target, starts))
