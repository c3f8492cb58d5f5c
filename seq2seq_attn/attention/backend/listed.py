"""Attention to the few keys that a pattern lists for each query: no others are scored, and no mask of all is made."""

from __future__ import annotations

import torch

from seq2seq_attn.attention.backend.kernel.listed_product import ListedContext, ListedScores, Lists
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.factory import redefines
from seq2seq_attn.nn.dropout import dropout


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where the pattern lists no keys or all pairs are faster; and on other devices."""
    pattern, memory, source = parts.pattern, request.memory, request.source
    if source < pattern.listed_from or request.target == 1 or not (memory.one_mask and serves(parts)):
        return None
    values = memory.values
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return None
    positions, query, keys = request.positions(), request.prepared[0], memory.keys[0]
    centre = None if pattern.selects else pattern.centre(request.query, positions.query, positions.end)
    own = positions.query if request.self_attention else None
    listed = pattern.listed(centre, query.detach(), keys.detach(), memory.mask, own, causal=request.causal)
    allowed = (listed >= 0) & (listed < source)
    if request.causal:
        allowed = allowed & (listed <= positions.query[:, None])
    listed = listed.clamp(0, source - 1)
    if memory.mask is not None:
        sentences = torch.arange(len(memory.mask))[:, None, None, None]
        allowed = allowed & memory.mask[sentences, listed]
    lists = Lists(listed, batch=len(query), heads=query.shape[1], kv_heads=values.shape[1], source=source)
    scores = ListedScores.apply(query, keys, lists)
    weights, log_prob, entropy = parts.normalize(scores, allowed)
    if centre is not None and pattern.reweighs:
        weights = pattern.reweigh(weights, centre, listed[:, 0])
    return HeadOutput(ListedContext.apply(dropout(weights, parts.dropout), values, lists), None, log_prob, entropy)


def serves(parts: Parts) -> bool:
    """Return whether the scores are inner products alone, and each row is normalized by itself."""
    plain = parts.relative is None or not (parts.relative.biases or parts.relative.adds_context)
    inner = parts.score.inner_product and not redefines(type(parts.score), Score.visible)
    return inner and plain and parts.mix is None and not torch.compiler.is_compiling()
