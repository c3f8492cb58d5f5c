"""Attention to a few keys that are listed for each query: no others are averaged, and no matrix of all is held.

A pattern lists them, or they are the best keys of a normalizer that keeps no others.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.backend.kernel.listed_product import ListedContext, ListedScores, Lists
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.nn.dropout import dropout
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.one_hot import list_best_positions

BEST_FROM = 8  # times as many keys as a normalizer keeps, from which this is faster: measured on one CPU core
MAX_SCORES = 2**20  # held at once to find the best keys; 4 MiB in float32


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where no keys are listed or all pairs are faster; and on other devices."""
    memory, query = request.memory, request.prepared
    if request.target == 1 or not (parts.inner_products and memory.one_mask) or torch.compiler.is_compiling():
        return None
    values, keys = memory.values, memory.keys[0]
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return None
    if not query[0].dtype == keys.dtype == values.dtype:  # autocast changes those that are projected
        return None
    positions, centre = request.positions(), None
    if request.source >= parts.pattern.listed_from:
        if parts.pattern.selects:
            vectors, own = (query[0].detach(), keys.detach()), positions.query if request.self_attention else None
            listed = parts.pattern.list_selected(*vectors, memory.mask, own, causal=request.causal)
        else:
            centre = parts.pattern.centre(request.query, positions.query, positions.end)
            listed = parts.pattern.listed(centre)[:, None]
    else:
        kept = parts.normalizer.keeps
        if kept is None or request.source < BEST_FROM * kept or not parts.pattern.sees_all:
            return None
        listed = best_keys(query[0].detach(), keys.detach(), request, kept)
    allowed = (listed >= 0) & (listed < request.source)
    if request.causal:
        allowed = allowed & (listed <= positions.query[:, None])
    listed = listed.clamp(0, request.source - 1)
    if memory.mask is not None:
        sentences = torch.arange(len(memory.mask))[:, None, None, None]
        allowed = allowed & memory.mask[sentences, listed]
    lists = Lists(listed, batch=len(values), heads=query[0].shape[1], kv_heads=values.shape[1], source=request.source)
    scores = ListedScores.apply(query[0], keys, lists)
    weights, log_prob, entropy = parts.normalize(scores, allowed)
    if centre is not None and parts.pattern.reweighs:
        weights = parts.pattern.reweigh(weights, centre, listed[:, 0])
    return HeadOutput(ListedContext.apply(dropout(weights, parts.dropout), values, lists), None, log_prob, entropy)


def best_keys(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    request: Request,
    count: int,
) -> Int[Tensor, "batch heads target count"]:
    """Return the positions of the visible keys with the highest scores, found some rows at a time."""
    visible, position = request.memory.visible, torch.arange(request.source)
    rows = max(1, MAX_SCORES // (len(query) * query.shape[1] * request.source))
    listed = []
    for own, some in zip(request.positions().query.split(rows), query.split(rows, 2), strict=True):
        end = int(own[-1]) + 1 if request.causal else request.source  # no row sees a later key
        scores = matmul_groups(some, keys[:, :, :end].mT)
        if visible is not None:
            scores.masked_fill_(~visible[..., :end], -torch.inf)
        if request.causal:
            scores.masked_fill_(position[:end] > own[:, None], -torch.inf)
        listed.append(list_best_positions(scores, count))
    return torch.cat(listed, 2)
