"""Every score as its paper writes it, for one query and one key, in float64."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Pair(NamedTuple):
    """One query q at position t and one key k at position s, as given; `end` is one past the last key it may see.

    `keys` are all keys of the sentence, and `length` is one past the last that is no padding.
    """

    q: Tensor
    k: Tensor
    t: int
    s: int
    end: int
    head: int
    heads: int
    keys: Tensor
    length: int


def additive(score: Any, pair: Pair) -> Tensor:
    rows = slice(pair.head * len(score.vector[0]), (pair.head + 1) * len(score.vector[0]))
    return score.vector[pair.head] @ torch.tanh(
        score.project_query.weight[rows] @ pair.q + score.project_key.weight[rows] @ pair.k
    )


def concat(score: Any, pair: Pair) -> Tensor:
    rows = slice(pair.head * len(score.vector[0]), (pair.head + 1) * len(score.vector[0]))
    return score.vector[pair.head] @ torch.tanh(score.project.weight[rows] @ torch.cat([pair.q, pair.k]))


def dot(score: Any, pair: Pair) -> Tensor:
    return head_of(pair.q, pair) @ head_of(pair.k, pair)


def general(score: Any, pair: Pair) -> Tensor:
    return head_of(pair.q, pair) @ head_of(score.project_key.weight @ pair.k, pair)


def scaled_dot(score: Any, pair: Pair) -> Tensor:
    query, keys = head_of(affine(score.project_query, pair.q), pair), affine(score.project_key, pair.k)
    groups = len(keys) // len(query)  # heads of keys, each for as many heads of queries
    return query @ keys.chunk(groups)[pair.head * groups // pair.heads] / math.sqrt(len(query))


def forgetting(score: Any, pair: Pair) -> Tensor:
    """Lin et al. 2025, eq. 4: the logarithms of all gates between, the nearer of the two tokens left out."""
    first, last = sorted((pair.s, min(pair.t, max(pair.length - 1, 0))))
    gates = [affine(score.gate, pair.keys[between])[pair.head].sigmoid() for between in range(first + 1, last + 1)]
    return scaled_dot(score.scaled_dot, pair) + sum((gate.log() for gate in gates), torch.zeros(()))


def plain_scaled_dot(score: Any, pair: Pair) -> Tensor:
    query, key = head_of(pair.q, pair), head_of(pair.k, pair)
    return query @ key / math.sqrt(len(query))


def cosine(score: Any, pair: Pair) -> Tensor:
    query, key = head_of(affine(score.project_query, pair.q), pair), head_of(affine(score.project_key, pair.k), pair)
    return score.scales[pair.head] * (query @ key) / (query.norm() * key.norm())


def qk_norm(score: Any, pair: Pair) -> Tensor:
    query, keys = head_of(affine(score.project_query, pair.q), pair), affine(score.project_key, pair.k)
    groups = len(keys) // len(query)
    key = keys.chunk(groups)[pair.head * groups // pair.heads]
    return rms_norm(query, score.query_gain) @ rms_norm(key, score.key_gain) / math.sqrt(len(query))


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return gain * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def latent(score: Any, pair: Pair) -> Tensor:
    """DeepSeek-AI 2024, eq. 9-10 and 12-13: the keys and queries of each head, made of their latents."""
    compressed = score.compress_query
    query = pair.q if compressed is None else rms_norm(affine(compressed, pair.q), score.query_gain)
    query, key = affine(score.project_query, query), affine(score.project_key, latents(score, pair.k))
    return head_of(query, pair) @ head_of(key, pair) / math.sqrt(len(query) / pair.heads)


def latents(score: Any, x: Tensor) -> Tensor:
    return rms_norm(affine(score.compress_keys, x), score.key_gain)


def l2(score: Any, pair: Pair) -> Tensor:
    query, key = head_of(affine(score.project_query, pair.q), pair), head_of(affine(score.project_key, pair.k), pair)
    return -(query - key).square().sum() / math.sqrt(len(query))


def soft_cap(score: Any, pair: Pair) -> Tensor:
    child = SCORES[type(score.score).__name__](score.score, pair)
    return score.cap * torch.tanh(child / score.cap)


def uniform(score: Any, pair: Pair) -> Tensor:
    return torch.zeros(())


def location(score: Any, pair: Pair) -> Tensor:
    return score.project.weight[pair.head, pair.s] @ head_of(pair.q, pair)


def dynamic_conv(score: Any, pair: Pair) -> Tensor:
    row = pair.head * (2 * score.max_distance + 1) + clipped_distance(score, pair)
    return score.project.weight[row] @ pair.q


def lightweight_conv(score: Any, pair: Pair) -> Tensor:
    return score.table[clipped_distance(score, pair), pair.head]


def clipped_distance(score: Any, pair: Pair) -> int:
    return max(-score.max_distance, min(score.max_distance, pair.s - pair.t)) + score.max_distance


def synthesizer_dense(score: Any, pair: Pair) -> Tensor:
    return linear(score.score, pair.head, hidden(score, pair))[pair.s]


def synthesizer_random(score: Any, pair: Pair) -> Tensor:
    return score.table[pair.head, pair.t, pair.s]


def synthesizer_factorized_dense(score: Any, pair: Pair) -> Tensor:
    a = linear(score.tiled, pair.head, hidden(score, pair))
    b = linear(score.repeated, pair.head, hidden(score, pair))
    return (a.repeat(len(b)) * b.repeat_interleave(len(a)))[pair.s]


def synthesizer_factorized_random(score: Any, pair: Pair) -> Tensor:
    return (score.target[pair.head] @ score.source[pair.head].T)[pair.t, pair.s]


def hidden(score: Any, pair: Pair) -> Tensor:
    return linear(score.hidden, pair.head, head_of(pair.q, pair)).clamp(min=0)


def linear(layer: Any, head: int, x: Tensor) -> Tensor:
    return layer.weight[head] @ x + layer.bias[head]


def fixed(score: Any, pair: Pair) -> Tensor:
    """Logarithms of the weights of Raganato et al. 2020, before they are made to sum to 1."""
    number = pair.head - len(FIXED)
    if number >= 0:
        width = len(pair.q) // pair.heads
        rows = slice(number * width, (number + 1) * width)
        query, key = affine(score.project_query, pair.q)[rows], affine(score.project_key, pair.k)[rows]
        return query @ key / math.sqrt(width)
    weights = {"left": pair.s + 1, "end": pair.s + 1, "right": pair.end - pair.s, "start": pair.end - pair.s}
    return torch.tensor(float(weights.get(FIXED[pair.head], 1) ** 3)).log()


def mixture(score: Any, pair: Pair) -> Tensor:
    shares = score.logits[:, pair.head].exp() / score.logits[:, pair.head].exp().sum()
    each = zip(shares, score.scores.values(), strict=True)
    return sum(share * SCORES[type(child).__name__](child, pair) for share, child in each)


def affine(layer: Any, x: Tensor) -> Tensor:
    """W x + b of a layer of the package, as torch computes it."""
    return F.linear(x, layer.weight, layer.bias)


def head_of(x: Tensor, pair: Pair) -> Tensor:
    return x.chunk(pair.heads)[pair.head]


# By class; each gives the score, a number.
SCORES = {
    "AdditiveScore": additive,
    "ConcatScore": concat,
    "CosineScore": cosine,
    "DotScore": dot,
    "DynamicConvScore": dynamic_conv,
    "FixedScore": fixed,
    "ForgettingScore": forgetting,
    "GeneralScore": general,
    "L2Score": l2,
    "LatentScore": latent,
    "LightweightConvScore": lightweight_conv,
    "LocationScore": location,
    "MixtureScore": mixture,
    "PlainScaledDotScore": plain_scaled_dot,
    "QkNormScore": qk_norm,
    "ScaledDotScore": scaled_dot,
    "SoftCapScore": soft_cap,
    "SynthesizerDenseScore": synthesizer_dense,
    "SynthesizerFactorizedDenseScore": synthesizer_factorized_dense,
    "SynthesizerFactorizedRandomScore": synthesizer_factorized_random,
    "SynthesizerRandomScore": synthesizer_random,
    "UniformScore": uniform,
}

FIXED = ("current", "previous", "next", "left", "right", "end", "start")


def fixed_looks(score: Any, pair: Pair) -> bool:
    """Whether one of the fixed heads has this position in its pattern."""
    ahead = pair.s - pair.t
    near = {"current": ahead == 0, "previous": ahead == -1, "next": ahead == 1}
    context = {"left": ahead <= -2, "right": ahead >= 2}
    return pair.head >= len(FIXED) or (near | context).get(FIXED[pair.head], True)


# By class; whether the score looks at this pair at all. Those that are not here look at all.
LOOKS: dict[str, Any] = {"FixedScore": fixed_looks}
