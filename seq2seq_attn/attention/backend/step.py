"""Attention of queries at one position, as in decoding, which reads only the keys in the window of that position."""

from __future__ import annotations

from seq2seq_attn.attention.backend.dense import weigh
from seq2seq_attn.attention.backend.fused import masked_product
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.nn.masked import intersect_masks


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None for several positions, or where the pattern has no window or changes the weights."""
    if request.target != 1 or parts.pattern.reweighs:
        return None
    window = parts.pattern.window(request.start, request.source, request.causal)
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
