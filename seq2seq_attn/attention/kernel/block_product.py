"""Context of a softmax over inner products under a pattern that is cut into blocks, sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.kernel.block import Block
from seq2seq_attn.attention.kernel.flash import BlockAttention, Group, in_rows

# Blocks of a sentence of so many rows and keys, causal or not: parts that together hold each pair once.
Cut = Callable[[int, int, bool], Sequence[Sequence[Block]]]


def block_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch heads source width"],
    values: Float[Tensor, "batch heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    causal: bool,
    cut: Cut,
    *,
    itself: bool,
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
            Group(i, i + 1, cut(length if itself else target, length, causal))
            for i, length in enumerate(lengths.tolist())
            if length > 0
        ]
    width, value_width = query.shape[-1], values.shape[-1]
    query, keys, values = (widened(x, max(width, value_width)) for x in (query, keys, values))
    return BlockAttention.apply(query, keys, values, groups)[..., :value_width]


def widened(
    x: Float[Tensor, "batch heads length _"], width: int
) -> Float[Tensor, "batch heads length {width}"]:
    """Zeros behind what is narrower: the kernel takes one width, and they change no product."""
    return in_rows(F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x)
