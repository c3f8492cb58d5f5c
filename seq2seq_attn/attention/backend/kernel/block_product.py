"""softmax(query keys^T) values under a pattern cut into blocks, for batches of any lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.backend.kernel.flash import BlockAttention, SentenceGroup, row_contiguous
from seq2seq_attn.attention.block import Block

# (rows, keys, causal) to the block groups of a sentence, which together hold each allowed pair once.
CutIntoBlocks = Callable[[int, int, bool], Sequence[Sequence[Block]]]
# Positions of padding that cost about as much as the calls for one more sentence. An estimate for 8 heads of 64: a
# position costs 2 to 4 microseconds, a sentence of three blocks 100 microseconds of overhead.
FREE_POSITIONS = 32


def block_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    causal: bool,
    cut: CutIntoBlocks,
    *,
    rows_match_keys: bool,
) -> Float[Tensor, "batch heads target value_width"] | None:
    """Return the context; None on a GPU, for real keys after padding, and in torch.compile and torch.export.

    A batch costs what its real keys cost. With `rows_match_keys`, rows of padding are left out too, and are 0.
    """
    if query.device.type != "cpu" or not query.dtype == keys.dtype == values.dtype:
        return None
    if torch.compiler.is_compiling():  # it refuses writes into strided views, and lengths that are read
        return None
    batch, target, source = len(query), query.shape[2], keys.shape[2]
    if mask is None:
        groups = [SentenceGroup(0, batch, cut(target, source, causal))]
    else:
        lengths = mask.sum(-1)
        if not torch.equal(mask, torch.arange(source) < lengths[:, None]):
            return None
        groups = [
            group_of(lengths.tolist(), first, end, target, causal, cut, rows_match_keys)
            for first, end in runs(lengths.tolist())
        ]
    width, value_width = query.shape[-1], values.shape[-1]
    query, keys, values = (widen(x, max(width, value_width)) for x in (query, keys, values))
    heads, shared = query.shape[1], keys.shape[1]
    if heads == shared:
        return BlockAttention.apply(query, keys, values, groups)[..., :value_width]
    members = query.unflatten(1, (shared, heads // shared)).unbind(2)  # query heads that read the same keys, uncopied
    contexts = [BlockAttention.apply(member, keys, values, groups) for member in members]
    return torch.stack(contexts, 2).flatten(1, 2)[..., :value_width]


def runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and end of neighbours of similar length: padding to the longest is cheaper than one call for each."""
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
    lengths: Sequence[int], first: int, end: int, target: int, causal: bool, cut: CutIntoBlocks, rows_match_keys: bool
) -> SentenceGroup:
    """Cut neighbours as the longest of them is cut."""
    lengths = list(lengths[first:end])
    longest = max(lengths)
    block_groups = cut(longest if rows_match_keys else target, longest, causal) if longest > 0 else []
    ragged = lengths if min(lengths) < longest else None
    # A causal row never meets the keys of padding, which come after it.
    return SentenceGroup(
        first,
        end,
        block_groups,
        keys=None if causal and rows_match_keys else ragged,
        rows=ragged if rows_match_keys else None,
    )


def widen(x: Float[Tensor, "batch heads length _"], width: int) -> Float[Tensor, "batch heads length {width}"]:
    """Pad with zeros, which change no product: the kernel takes one width."""
    return row_contiguous(F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x)
