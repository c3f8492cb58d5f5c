"""Attention of queries at one position, as in decoding, which reads only the keys in the window of that position."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq_attn.attention.backend.dense import weigh
from seq2seq_attn.attention.backend.fused import masked_product
from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.nn.masked import intersect_masks

# All layers of a step read the same window, and so does the next sentence. A slice is built faster than looked up.
CACHED_WINDOWS: PatternCache[Int[Tensor, " keys"] | None] = PatternCache(
    lambda window: 0 if window is None else window.nbytes, most=256
)


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None for several positions, or where the pattern has no window or changes the weights."""
    if request.target != 1 or parts.pattern.reweighs:
        return None
    at = request.start, request.source, request.causal
    window: slice | Tensor | None
    if parts.pattern.scattered:
        window = CACHED_WINDOWS.make_once(window_of, parts.pattern, *at, request.query.device)
    else:
        window = parts.pattern.window(*at)
    if window is None:
        return None
    read = request.memory.at(window)
    if parts.fusible and read.one_mask:
        sink = parts.normalizer.sink_logits(read.keys[0])
        return HeadOutput(masked_product(request.prepared[0], read.keys[0], read.values, read.visible, sink))
    positions = request.positions(window)
    scores = parts.scores(request.prepared, read.keys, positions, read.values.dtype)
    allowed = intersect_masks(read.visible, parts.score.visible(positions))
    return weigh(parts, request, scores, allowed, read.values, positions)


def window_of(
    pattern: Pattern, position: int, source: int, causal: bool, device: torch.device
) -> Int[Tensor, " keys"] | None:
    """Return the window of a scattered pattern, on a device."""
    window = pattern.window(position, source, causal)
    assert not isinstance(window, slice)
    return None if window is None else window.to(device)
