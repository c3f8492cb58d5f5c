"""Weights of feature maps as the papers write them, key by key, in float64; the random directions are the layer's."""

from __future__ import annotations

import math
from typing import Any

import torch
from attention.score_formulas import Pair
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


def kernel_weights(attention: Any, pairs: list[Pair]) -> dict[int, Tensor]:
    """Weight of each key that a query may see, by its position; none where all products are 0."""
    if not pairs:
        return {}
    head, heads = pairs[0].head, pairs[0].heads
    kernel = KERNELS[type(attention.feature_map).__name__]
    query = attention.project_query(pairs[0].q).chunk(heads)[head]
    products = {
        p.s: kernel(attention.feature_map, query, attention.project_key(p.k).chunk(heads)[head], p.t, p.s)
        for p in pairs
    }
    total = sum(products.values())
    return {s: product / total for s, product in products.items()} if total > 0 else {}
