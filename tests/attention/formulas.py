"""An attention as the papers write it: loops over pairs, float64, no batching tricks."""

from __future__ import annotations

from typing import Any

import torch
from attention.normalizer_formulas import weights_of
from attention.pattern_formulas import SEES, factor
from attention.score_formulas import LOOKS, SCORES, Pair
from torch import Tensor


def attend(
    attention: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Context and weights, row by row: zeros where nothing may be seen.

    `mask` is (batch, source) or (batch, target, source).
    """
    batch, target, source, heads = len(query), query.shape[1], keys.shape[1], attention.num_heads
    mask = torch.ones(batch, source, dtype=torch.bool) if mask is None else mask
    masks = mask[:, None].expand(-1, target, -1) if mask.dim() == 2 else mask
    if attention.project_values is not None:
        values = attention.project_values(values)
    weights = torch.zeros(batch, heads, target, source)
    contexts = []
    for b in range(batch):
        real = masks[b].any(0).nonzero()
        length = int(real.max()) + 1 if len(real) else 0
        for t in range(target):
            for h in range(heads):
                end = t + 1 if causal else length
                pairs = [Pair(query[b, t], keys[b, s], t, s, end, h, heads) for s in range(source)]
                pairs = [pair for pair in pairs if masks[b, t, pair.s] and not (causal and pair.s > t)]
                shares = weigh(attention, pairs)
                value = values[b].chunk(heads, -1)[h]
                context = torch.zeros_like(value[0])
                for s, share in shares.items():
                    weights[b, h, t, s] = share.detach()
                    context = context + share * value[s]
                contexts.append(context)
    context = torch.cat(contexts).view(batch, target, -1)
    return (context if attention.project_output is None else attention.project_output(context)), weights


def weigh(attention: Any, pairs: list[Pair]) -> dict[int, Tensor]:
    """Weight of each key that a query sees, by its position."""
    score, pattern, normalizer = attention.score, attention.pattern, attention.normalizer
    looks = LOOKS.get(type(score).__name__, lambda score, pair: True)
    seen = [p for p in pairs if SEES[type(pattern).__name__](pattern, p) and looks(score, p)]
    if not seen:
        return {}
    scores = torch.stack([SCORES[type(score).__name__](score, pair) for pair in seen])
    shares = weights_of(normalizer, scores, seen[0].head)
    return {p.s: share * factor(pattern, p) for p, share in zip(seen, shares, strict=True)}
