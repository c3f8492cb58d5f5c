"""Context of a softmax over inner products under a pattern cut into blocks, in batches of any lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.backend.kernel.flash import BlockAttention, Group, in_rows
from seq2seq_attn.attention.block import Block

# Blocks of a sentence of so many rows and keys, causal or not: parts that together hold each pair once.
Cut = Callable[[int, int, bool], Sequence[Sequence[Block]]]
# Positions of padding that cost about what the calls of one more sentence do. A judgement for 8 heads of 64: a position
# costs 2 to 4 microseconds, a sentence of three blocks 100 of overhead.
FREE_POSITIONS = 32


def block_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch heads source width"],
    values: Float[Tensor, "batch heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    causal: bool,
    cut: Cut,
    *,
    rows_match_keys: bool,
) -> Float[Tensor, "batch heads target value_width"] | None:
    """None where the kernel does not serve: on another device, or for real keys that stand behind padding.

    A batch costs what its real keys cost. `itself`: a row stands where its key does, so that rows of padding are
    left out too, and 0.
    """
    if query.device.type != "cpu" or not query.dtype == keys.dtype == values.dtype:
        return None
    batch, target, source = len(query), query.shape[2], keys.shape[2]
    if mask is None:
        groups = [Group(0, batch, cut(target, source, causal))]
    else:
        lengths = mask.sum(-1)
        if not torch.equal(mask, torch.arange(source) < lengths[:, None]):
            return None
        groups = [
            group_of(lengths.tolist(), first, end, target, causal, cut, rows_match_keys)
            for first, end in runs(lengths.tolist())
        ]
    width, value_width = query.shape[-1], values.shape[-1]
    query, keys, values = (widened(x, max(width, value_width)) for x in (query, keys, values))
    return BlockAttention.apply(query, keys, values, groups)[..., :value_width]


def runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and end of neighbours of about one length: padding to the longest is cheaper than one call for each."""
    first, longest, total = 0, 0, 0
    for i, length in enumerate(lengths):
        padding = max(longest, length) * (i + 1 - first) - (total + length)
        if padding > FREE_POSITIONS * (i - first):
            yield first, i
            first, longest, total = i, 0, 0
        longest, total = max(longest, length), total + length
    if first < len(lengths):
        yield first, len(lengths)


def group_of(
    lengths: Sequence[int], first: int, end: int, target: int, causal: bool, cut: Cut, rows_match_keys: bool
) -> Group:
    """Neighbours cut as the longest of them."""
    own = list(lengths[first:end])
    longest = max(own)
    parts = cut(longest if rows_match_keys else target, longest, causal) if longest > 0 else []
    ragged = own if min(own) < longest else None
    # A row that sees nothing behind itself never meets the keys of padding.
    return Group(
        first, end, parts, keys=None if causal and rows_match_keys else ragged, rows=ragged if rows_match_keys else None
    )


def widened(x: Float[Tensor, "batch heads length _"], width: int) -> Float[Tensor, "batch heads length {width}"]:
    """Zeros behind what is narrower: the kernel takes one width, and they change no product."""
    return in_rows(F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x)
