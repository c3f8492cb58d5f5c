"""An attention as the papers write it: loops over pairs, float64, no batching tricks."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from attention.delta_formulas import delta_weights
from attention.feature_map_formulas import kernel_weights
from attention.history_formulas import HISTORY_NORMALIZERS, HISTORY_SCORES, Past
from attention.mix_formulas import CONTEXTS, GATES, MIXES
from attention.normalizer_formulas import weights_of
from attention.pattern_formulas import SEES, SELECTS, factor
from attention.score_formulas import LOOKS, SCORES, Pair, latents
from torch import Tensor

from seq2seq_attn.attention import DeltaAttention


def attend(
    attention: Any,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    causal: bool,
    own: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Context and weights, row by row: zeros where nothing may be seen.

    `mask` is (batch, source) or (batch, target, source). `own`: it is self-attention; None: if it is causal.
    """
    batch, target, source, heads = len(query), query.shape[1], keys.shape[1], attention.num_heads
    mask = torch.ones(batch, source, dtype=torch.bool) if mask is None else mask
    masks = mask[:, None].expand(-1, target, -1) if mask.dim() == 2 else mask
    if getattr(attention, "latent", None) is not None:  # DeepSeek-AI 2024, eq. 11
        values = latents(attention.score, values)
    if attention.project_values is not None:
        values = attention.project_values(values)
    mixing, gate = getattr(attention, "mix", None), getattr(attention, "gate", None)
    mix, sets = type(mixing).__name__, 1 if mixing is None else mixing.score_heads_per_head
    kv_heads = getattr(attention, "num_kv_heads", heads)
    weights = torch.zeros(batch, heads, target, source)
    contexts = []
    for b in range(batch):
        real = masks[b].any(0).nonzero()
        length = int(real.max()) + 1 if len(real) else 0
        past: list[Past] = [[] for _ in range(heads)]
        for t in range(target):
            rows = []
            for h in range(heads * sets):
                end = t + 1 if causal else length
                given = end, h, heads * sets, keys[b], length
                pairs = [Pair(query[b, t], keys[b, s], t, s, *given) for s in range(source)]
                rows.append([pair for pair in pairs if masks[b, t, pair.s] and not (causal and pair.s > t)])
            if mixing is None:
                itself = causal if own is None else own
                shared = [weigh(attention, pairs, past[h], itself) for h, pairs in enumerate(rows)]
            else:
                shared = mixed(attention, rows)
            joined = []
            for h, shares in enumerate(shared):
                past[h].append(shares)
                value = values[b].chunk(kv_heads, -1)[h * kv_heads // heads]
                context = torch.zeros_like(value[0])
                for s, share in shares.items():
                    weights[b, h, t, s] = share.detach()
                    context = context + share * value[s]
                if isinstance(attention, DeltaAttention):  # Yang et al. 2024: RMSNorm of each head
                    context = context / (context.square().mean() + 1e-5).sqrt() * attention.norm.weight
                joined.append(CONTEXTS[mix](attention.mix, context) if mix in CONTEXTS else context)
            context = torch.cat(joined)
            contexts.append(context if gate is None else GATES[type(gate).__name__](gate, query[b, t], context, heads))
    context = torch.cat(contexts).view(batch, target, -1)
    return (context if attention.project_output is None else attention.project_output(context)), weights


def weigh(attention: Any, pairs: list[Pair], past: Past, own: bool) -> dict[int, Tensor]:
    """Weight of each key that a query sees, by its position; `past` are those of the head's queries before."""
    if isinstance(attention, DeltaAttention):
        return delta_weights(attention, pairs)
    if hasattr(attention, "feature_map"):
        return kernel_weights(attention, pairs)
    score, pattern, normalizer = attention.score, attention.pattern, attention.normalizer
    looks = LOOKS.get(type(score).__name__, lambda score, pair: True)
    name = type(pattern).__name__
    if name in SELECTS:
        pairs = sorted(SELECTS[name](attention, pairs, own), key=lambda pair: pair.s)
    seen = [p for p in pairs if (name in SELECTS or SEES[name](pattern, p)) and looks(score, p)]
    if not seen:
        return {}
    if reading := HISTORY_SCORES.get(type(score).__name__):
        scores = torch.stack([reading(score, pair, past) for pair in seen])
    else:
        scores = torch.stack([SCORES[type(score).__name__](score, pair) for pair in seen])
    if walking := HISTORY_NORMALIZERS.get(type(normalizer).__name__):
        found = walking(normalizer, {p.s: x for p, x in zip(seen, scores, strict=True)}, past)
        return {p.s: found[p.s] * factor(pattern, p) for p in seen}
    shares = weights_of(normalizer, scores, seen[0].head)
    return {p.s: share * factor(pattern, p) for p, share in zip(seen, shares, strict=True)}


def mixed(attention: Any, rows: list[list[Pair]]) -> list[dict[int, Tensor]]:
    """Weights of the keys that a query sees, of all heads; every head sees the same keys."""
    score, pattern = attention.score, attention.pattern
    rows = [[p for p in pairs if SEES[type(pattern).__name__](pattern, p)] for pairs in rows]
    seen = rows[0]
    if not seen:
        return [{}] * attention.num_heads
    scores = [torch.stack([SCORES[type(score).__name__](score, pair) for pair in pairs]) for pairs in rows]
    weights = MIXES[type(attention.mix).__name__](
        attention.mix, scores, partial(weights_of, attention.normalizer, head=0)
    )
    return [{p.s: share * factor(pattern, p) for p, share in zip(seen, row, strict=True)} for row in weights]
