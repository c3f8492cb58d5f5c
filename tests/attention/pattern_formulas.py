"""Every pattern as its paper writes it: whether a query may see a key, and what its weight is multiplied by."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import torch
from attention.score_formulas import Pair
from torch import Tensor


def full(pattern: Any, pair: Pair) -> bool:
    return True


def local(pattern: Any, pair: Pair) -> bool:
    return abs(pair.s - aligned(pattern, pair)) <= pattern.k


def atrous(pattern: Any, pair: Pair) -> bool:
    return abs(pair.s - aligned(pattern, pair)) % pattern.k == 0


def sparse(pattern: Any, pair: Pair) -> bool:
    return local(pattern, pair) or atrous(pattern, pair)


def local_p(pattern: Any, pair: Pair) -> bool:
    return bool((pair.s - predicted(pattern, pair)).abs() <= pattern.k)


def gaussian(pattern: Any, pair: Pair) -> Tensor:
    sigma = pattern.k / 2
    return torch.exp(-((pair.s - predicted(pattern, pair)) ** 2) / (2 * sigma**2))


def aligned(pattern: Any, pair: Pair) -> int:
    """The target position in source positions, halves up."""
    return int((pair.t * Decimal(str(pattern.length_ratio))).to_integral_value(ROUND_HALF_UP))


def predicted(pattern: Any, pair: Pair) -> Tensor:
    return pair.end * torch.sigmoid(pattern.vector[0] @ torch.tanh(pattern.project_query.weight @ pair.q))


# By class; whether the query of a pair may see its key. An alternating one is gone: its layer has one of these.
SEES = {
    "FullPattern": full,
    "LocalPattern": local,
    "AtrousPattern": atrous,
    "SparsePattern": sparse,
    "LocalPPattern": local_p,
}

# By class; the factor of a weight, after the normalizer. Those that are not here leave it.
FACTORS: dict[str, Any] = {"LocalPPattern": gaussian}


def factor(pattern: Any, pair: Pair) -> Tensor:
    name = type(pattern).__name__
    return FACTORS[name](pattern, pair) if name in FACTORS else torch.ones(())
