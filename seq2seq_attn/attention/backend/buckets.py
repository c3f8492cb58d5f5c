"""Softmax attention to the keys in the buckets of a query, where the pattern hashes queries and keys."""

from __future__ import annotations

import torch

from seq2seq_attn.attention.backend.kernel.bucket_product import BucketTiles, bucket_product
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where the pattern has no buckets or all pairs are faster; and on other devices."""
    memory, pattern = request.memory, parts.pattern
    if request.source < pattern.buckets_from or not (parts.fusible and memory.one_mask) or request.target == 1:
        return None
    query, keys, values = request.prepared[0], memory.keys[0], memory.values
    if not (query.is_cpu and query.dtype == keys.dtype == values.dtype) or torch.compiler.is_compiling():
        return None
    if query.dtype not in (torch.float32, torch.float64) or parts.normalizer.sink_logits(keys) is not None:
        return None
    if request.self_attention and request.start + request.target > request.source:  # queries without an own key
        return None
    own = request.positions().query if request.self_attention else None
    buckets = pattern.buckets(query.detach()), pattern.buckets(keys.detach())
    tiles = BucketTiles(*buckets, memory.mask, own, causal=request.causal)
    return HeadOutput(bucket_product(query, keys, values, tiles))
