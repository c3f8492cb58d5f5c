"""Batches of similar cost: pairs sorted by length and cut at a budget of padded tokens, equally many on each device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
from jaxtyping import Float, Int, Int64
from torch.utils.data import Sampler

from seq2seq_attn.errors import UserError

BUCKET_WIDTHS = (1, 2, 4, 8)  # small corpora need wide buckets; narrow ones would mix targets of all lengths


@final
class TokenBatchSampler(Sampler[list[int]]):
    """Lists of row numbers: each row occurs once, and every device gets the same number of lists.

    The sorted lengths, and therefore the cuts, are the same in every epoch. (seed, epoch) determines the order of
    pairs of equal length and the order of the batches.

    Args:
        source_lengths, target_lengths: in tokens, without begin and end tokens.
        batch_tokens: most padded source and target tokens in a batch, specials included; a longer pair forms a
            batch of its own.
        batch_sentences: most pairs in a batch, in place of or in addition to `batch_tokens`.
        shuffle: False: the same order, by length, in every epoch.
        single_device_batches: for evaluation: form the batches that a single device would have, so that sums over
            them agree to the last digit; a device without a last batch gets an empty list.
        rows: use only these pairs; None: all.

    Raises:
        UserError: if a limit is less than 1, or the devices cannot get the same number of batches.
    """

    def __init__(
        self,
        source_lengths: Int[np.ndarray, "pairs"],
        target_lengths: Int[np.ndarray, "pairs"],
        *,
        batch_tokens: int | None = None,
        batch_sentences: int | None = None,
        shuffle: bool,
        seed: int,
        rank: int = 0,
        num_replicas: int = 1,
        single_device_batches: bool = False,
        rows: Int[np.ndarray, "some"] | None = None,
    ) -> None:
        check_limit("batch_tokens", batch_tokens)
        check_limit("batch_sentences", batch_sentences)
        self.rows = np.arange(len(source_lengths)) if rows is None else rows
        source_lengths, target_lengths = source_lengths[self.rows], target_lengths[self.rows]
        if len(source_lengths) < num_replicas and not single_device_batches:
            raise UserError(
                f"{len(source_lengths)} sentence pairs cannot be shared by {num_replicas} devices; "
                "use trainer.devices=1"
            )
        self.source_lengths = np.asarray(source_lengths, np.int64) + 1
        self.target_lengths = np.asarray(target_lengths, np.int64) + 1
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self._start = (0, 0)
        self.rank, self.num_replicas, self.single_device_batches = rank, num_replicas, single_device_batches
        plans = [self._plan(width, batch_tokens, batch_sentences) for width in BUCKET_WIDTHS]
        self.padding_share, self._cuts, self._width = min(plans, key=lambda plan: plan[0])

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
        return -(-(len(self._cuts) - 1) // self.num_replicas)

    def __iter__(self) -> Iterator[list[int]]:
        num_batches = len(self._cuts) - 1
        if self.shuffle:
            random = np.random.default_rng([self.seed, self.epoch])
            order = self._order(self._width, random.random(len(self.source_lengths)))
            batches = random.permutation(num_batches)
        else:
            order, batches = self._order(self._width), np.arange(num_batches)
        epoch, start = self._start
        rank_batches = batches[self.rank :: self.num_replicas]
        for batch in rank_batches[start if self.epoch == epoch else 0 :]:
            yield self.rows[order[self._cuts[batch] : self._cuts[batch + 1]]].tolist()
        if len(rank_batches) < len(self):
            yield []

    def _plan(
        self, width: int, batch_tokens: int | None, batch_sentences: int | None
    ) -> tuple[float, Int64[np.ndarray, "fences"], int]:
        """Return the share of padding and the cuts for buckets of this width, and the width."""
        order = self._order(width)
        source, target = self.source_lengths[order], self.target_lengths[order]
        cuts = cut(source, target, batch_tokens, batch_sentences)
        cuts = cuts if self.single_device_batches else even_out(cuts, source, target, self.num_replicas)
        real = int(source.sum() + target.sum())
        return 1.0 - real / int(padded_tokens(cuts, source, target).sum()), cuts, width

    def _order(self, width: int, tie_break: Float[np.ndarray, "pairs"] | None = None) -> Int64[np.ndarray, "pairs"]:
        """Sort by source length in buckets of this width, then by target length, alternately rising and falling."""
        bucket = self.source_lengths // width
        snake = np.where(bucket % 2 == 0, self.target_lengths, -self.target_lengths)
        keys = (self.source_lengths, snake, bucket)
        return np.lexsort(keys if tie_break is None else (tie_break, *keys))


def check_limit(name: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UserError(f"{name}={limit} must be at least 1; use {name}={4096 if name == 'batch_tokens' else 64}")


def cut(
    source: Int64[np.ndarray, "pairs"],
    target: Int64[np.ndarray, "pairs"],
    batch_tokens: int | None,
    batch_sentences: int | None,
) -> Int64[np.ndarray, "fences"]:
    """Return where each batch begins, and the end: a batch takes pairs in order while it is within both limits."""
    most_tokens, most_sentences = batch_tokens or np.inf, batch_sentences or np.inf
    cuts, longest_source, longest_target = [0], 0, 0
    for position, (s, t) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        longest_source, longest_target = max(longest_source, s), max(longest_target, t)
        size = position - cuts[-1] + 1
        too_much = size * (longest_source + longest_target) > most_tokens or size > most_sentences
        if size > 1 and too_much:
            cuts.append(position)
            longest_source, longest_target = s, t
    return np.array([*cuts, len(source)])


def even_out(
    cuts: Int64[np.ndarray, "fences"],
    source: Int64[np.ndarray, "pairs"],
    target: Int64[np.ndarray, "pairs"],
    num_replicas: int,
) -> Int64[np.ndarray, "more_fences"]:
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
    cuts: Int64[np.ndarray, "fences"], source: Int64[np.ndarray, "pairs"], target: Int64[np.ndarray, "pairs"]
) -> Int64[np.ndarray, "batches"]:
    starts = cuts[:-1]
    return np.diff(cuts) * (np.maximum.reduceat(source, starts) + np.maximum.reduceat(target, starts))
