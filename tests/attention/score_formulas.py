"""Every score as its paper writes it: loops over pairs, float64, no batching tricks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def additive(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    rows = slice(head * len(score.vector[0]), (head + 1) * len(score.vector[0]))
    return score.vector[head] @ torch.tanh(
        score.project_query.weight[rows] @ q + score.project_key.weight[rows] @ k
    )


def concat(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    rows = slice(head * len(score.vector[0]), (head + 1) * len(score.vector[0]))
    return score.vector[head] @ torch.tanh(score.project.weight[rows] @ torch.cat([q, k]))


def dot(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    return q.chunk(heads)[head] @ k.chunk(heads)[head]


def general(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    return q.chunk(heads)[head] @ (score.project_key.weight @ k).chunk(heads)[head]


def scaled_dot(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    query, key = score.project_query(q).chunk(heads)[head], score.project_key(k).chunk(heads)[head]
    return query @ key / math.sqrt(len(query))


def uniform(score: Any, q: Tensor, k: Tensor, head: int, heads: int) -> Tensor:
    return torch.zeros(())


SCORES = {
    "AdditiveScore": additive,
    "ConcatScore": concat,
    "DotScore": dot,
    "GeneralScore": general,
    "ScaledDotScore": scaled_dot,
    "UniformScore": uniform,
}


def attend(
    attention: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Context and weights, pair by pair: softmax over what may be seen, zeros where that is nothing."""
    batch, target, source, heads = len(query), query.shape[1], keys.shape[1], attention.num_heads
    score = SCORES[type(attention.score).__name__]
    if attention.project_values is not None:
        values = attention.project_values(values)
    weights = torch.zeros(batch, heads, target, source)
    contexts = []
    for b in range(batch):
        for t in range(target):
            seen = [s for s in range(source) if (mask is None or mask[b, s]) and (not causal or s <= t)]
            for h in range(heads):
                value = values[b].chunk(heads, -1)[h]
                if not seen:
                    contexts.append(torch.zeros_like(value[0]))
                    continue
                exps = torch.stack(
                    [score(attention.score, query[b, t], keys[b, s], h, heads) for s in seen]
                ).exp()
                shares = exps / exps.sum()
                weights[b, h, t, seen] = shares.detach()
                contexts.append(sum(share * value[s] for share, s in zip(shares, seen, strict=True)))
    context = torch.cat(contexts).view(batch, target, -1)
    return (context if attention.project_output is None else attention.project_output(context)), weights
