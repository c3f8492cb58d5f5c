"""Padded tensors from token ids, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64, Integer
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.encoded import EncodedSplit


def collate(split: EncodedSplit, rows: Sequence[int], *, pad_id: int, bos_id: int, eos_id: int) -> Batch:
    """Return the batch of these rows, of one shard of an encoded split."""
    shard, index = split.locate(rows)
    source = gather(shard.source_ids, shard.source_offsets[index], shard.source_offsets[index + 1], pad_id)
    target = gather(shard.target_ids, shard.target_offsets[index], shard.target_offsets[index + 1], pad_id)
    return make_batch(source, target, np.asarray(rows, np.int64), bos_id=bos_id, eos_id=eos_id)


def collate_pairs(
    sources: list[list[int]], targets: list[list[int]], rows: Sequence[int], *, pad_id: int, bos_id: int, eos_id: int
) -> Batch:
    """Return the batch of these sentences, given as ids without begin or end tokens."""
    index = np.asarray(rows, np.int64)
    return make_batch(gather_lists(sources, pad_id), gather_lists(targets, pad_id), index, bos_id=bos_id, eos_id=eos_id)


def collate_sources(
    ids: list[list[int]], *, pad_id: int, eos_id: int
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, " batch"], Bool[Tensor, "batch source"]]:
    """Return ids, lengths and mask of source sentences, each with its end token."""
    padded, lengths = gather_lists(ids, pad_id)
    return append_end(padded, lengths, eos_id)


def gather(
    ids: Integer[np.ndarray, " tokens"],
    starts: Int64[np.ndarray, " batch"],
    ends: Int64[np.ndarray, " batch"],
    pad_id: int,
) -> tuple[Int64[np.ndarray, "batch length"], Int64[np.ndarray, " batch"]]:
    """Return rows of a flat array, padded to one more than the longest, and their lengths; there may be no rows."""
    lengths = ends - starts
    position = np.arange(lengths.max(initial=0) + 1)
    padded = np.full((len(starts), len(position)), pad_id, np.int64)
    real = position < lengths[:, None]
    padded[real] = ids[(starts[:, None] + position)[real]]
    return padded, lengths


def gather_lists(
    ids: list[list[int]], pad_id: int
) -> tuple[Int64[np.ndarray, "batch length"], Int64[np.ndarray, " batch"]]:
    lengths = np.array([len(row) for row in ids], np.int64)
    ends = np.cumsum(lengths)
    flat = np.array([token for row in ids for token in row], np.int64)
    return gather(flat, ends - lengths, ends, pad_id)


def append_end(
    padded: Int64[np.ndarray, "batch length"], lengths: Int64[np.ndarray, " batch"], eos_id: int
) -> tuple[Int64[Tensor, "batch length"], Int64[Tensor, " batch"], Bool[Tensor, "batch length"]]:
    """Append the end token to each row; return the ids, the new lengths and the mask of real tokens."""
    closed = padded.copy()
    closed[np.arange(len(lengths)), lengths] = eos_id
    mask = np.arange(padded.shape[1]) <= lengths[:, None]
    return torch.from_numpy(closed), torch.from_numpy(lengths + 1), torch.from_numpy(mask)


def make_batch(
    source: tuple[Int64[np.ndarray, "batch source"], Int64[np.ndarray, " batch"]],
    target: tuple[Int64[np.ndarray, "batch target"], Int64[np.ndarray, " batch"]],
    index: Int64[np.ndarray, " batch"],
    *,
    bos_id: int,
    eos_id: int,
) -> Batch:
    padded_target, target_lengths = target
    target_input = np.roll(padded_target, 1, axis=1)  # the last position of every row is padding
    target_input[:, 0] = bos_id
    closed_source, closed_source_lengths, source_mask = append_end(*source, eos_id)
    target_output, closed_target_lengths, target_mask = append_end(padded_target, target_lengths, eos_id)
    return Batch(
        source=closed_source,
        source_lengths=closed_source_lengths,
        source_mask=source_mask,
        target_input=torch.from_numpy(target_input),
        target_output=target_output,
        target_lengths=closed_target_lengths,
        target_mask=target_mask,
        index=torch.from_numpy(index),
    )
