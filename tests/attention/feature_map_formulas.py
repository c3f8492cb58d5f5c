"""Weights of feature maps and decays as the papers write them, key by key, in float64.

The random directions are the layer's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from attention.score_formulas import Pair, affine
from torch import Tensor


def elu_plus_one(x: Tensor) -> Tensor:
    return torch.stack([v + 1 if v > 0 else v.exp() for v in x])


def linear(feature_map: Any, query: Tensor, key: Tensor, t: int, s: int) -> Tensor:
    """Katharopoulos et al. 2020, eq. 7."""
    return (elu_plus_one(query) * elu_plus_one(key)).sum()


def performer(feature_map: Any, query: Tensor, key: Tensor, t: int, s: int) -> Tensor:
    """Choromanski et al. 2021, lemma 1 (SM+), without a stabiliser."""
    q, k = (x / len(x) ** 0.25 for x in (query, key))
    estimates = [(w @ q - q @ q / 2).exp() * (w @ k - k @ k / 2).exp() for w in feature_map.directions]
    return torch.stack(estimates).mean()


def cosformer(feature_map: Any, query: Tensor, key: Tensor, t: int, s: int) -> Tensor:
    """Qin et al. 2022, eq. 10."""
    product = (query.clamp(min=0) * key.clamp(min=0)).sum()
    return product * math.cos(math.pi / 2 * (t - s) / feature_map.max_length)


KERNELS = {"LinearFeatureMap": linear, "PerformerFeatureMap": performer, "CosformerFeatureMap": cosformer}


def gate(decay: Any, x: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """Peng et al. 2021, eq. 7."""
    f = torch.sigmoid(decay.project.weight[head] @ x + decay.project.bias[head])
    return f, 1 - f


def fixed(decay: Any, x: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """Sun et al. 2023, eq. 8."""
    return torch.tensor(1 - 2.0 ** (-5 - head)), torch.tensor(1.0)


DECAYS = {"GateDecay": gate, "FixedDecay": fixed}


def decays(attention: Any, pairs: list[Pair]) -> dict[int, Tensor]:
    """Factor of each key that a query may see: what its token adds, and what the tokens between have kept of it."""
    if attention.decay is None:
        return {p.s: torch.ones(()) for p in pairs}
    decay = DECAYS[type(attention.decay).__name__]
    tokens = {p.s: decay(attention.decay, p.k, p.head) for p in pairs}  # those that are hidden keep all
    factors = {}
    for pair in pairs:
        first, last = sorted((pair.s, pair.t))
        kept = [f for position, (f, _) in tokens.items() if first < position <= last]
        factors[pair.s] = math.prod(kept, start=tokens[pair.s][1])
    return factors


def kernel_weights(attention: Any, pairs: list[Pair]) -> dict[int, Tensor]:
    """Weight of each key that a query may see, by its position; none where all products are 0."""
    if not pairs:
        return {}
    head, heads = pairs[0].head, pairs[0].heads
    kernel = KERNELS[type(attention.feature_map).__name__]
    query = affine(attention.project_query, pairs[0].q).chunk(heads)[head]
    factors = decays(attention, pairs)
    products = {
        p.s: factors[p.s]
        * kernel(attention.feature_map, query, affine(attention.project_key, p.k).chunk(heads)[head], p.t, p.s)
        for p in pairs
    }
    total = sum(products.values())
    return {s: product / total for s, product in products.items()} if total > 0 else {}
