"""The delta rule as the papers write it, token by token, in float64."""

from __future__ import annotations

from typing import Any

import torch
from attention.feature_map_formulas import DECAYS
from attention.score_formulas import Pair, affine
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """Yang et al. 2024, section 3: silu, divided by its length."""
    x = x * torch.sigmoid(x)
    return x / (x @ x).sqrt()


def delta_weights(attention: Any, pairs: list[Pair]) -> dict[int, Tensor]:
    """Yang et al. 2025: S_t = f (I - b k k^T) S_(t-1) + b k v^T; the state is a sum of (a vector) v_s^T over s.

    The weight of v_s is the product of its vector with the query.
    """
    vectors: dict[int, Tensor] = {}
    for pair in sorted(pairs, key=lambda pair: pair.s):
        key = unit(affine(attention.project_key, pair.k).chunk(pair.heads)[pair.head])
        strength = torch.sigmoid(attention.project_strength.weight[pair.head] @ pair.k)
        kept = torch.ones(())
        if attention.decay is not None:
            kept, _ = DECAYS[type(attention.decay).__name__](attention.decay, pair.k, pair.head)
        vectors = {s: kept * (vector - strength * (key @ vector) * key) for s, vector in vectors.items()}
        vectors[pair.s] = strength * key
    if not pairs:
        return {}
    query = unit(affine(attention.project_query, pairs[0].q).chunk(pairs[0].heads)[pairs[0].head])
    return {s: query @ vector for s, vector in vectors.items()}
