"""Parts that read the weights of the steps before, as their papers write them: loops over keys, in float64."""

from __future__ import annotations

from typing import Any

import torch
from attention.score_formulas import Pair
from torch import Tensor

Past = list[dict[int, Tensor]]  # the weights of the steps before, by the position of the key; hidden keys are left out


def coverage(score: Any, pair: Pair, past: Past) -> Tensor:
    """Tu et al. 2016: C_j is a sum over the steps, each divided by the fertility N sigmoid(u . h_j)."""
    additive, rows = score.additive, rows_of(score.additive, pair)
    covered = torch.zeros(())
    for weights in past:
        fertility = torch.ones(())
        if score.max_fertility is not None:
            fertility = score.max_fertility / (1 + (-(score.fertility.weight[pair.head] @ pair.k)).exp())
        covered = covered + weights.get(pair.s, torch.zeros(())) / fertility
    return additive.vector[pair.head] @ torch.tanh(
        additive.project_query.weight[rows] @ pair.q
        + additive.project_key.weight[rows] @ pair.k
        + score.from_coverage[pair.head] * covered
    )


def location_sensitive(score: Any, pair: Pair, past: Past) -> Tensor:
    """Chorowski et al. 2015, eq. 8 and 9: filter k reads the weights of the neighbours in the last step."""
    additive, rows = score.additive, rows_of(score.additive, pair)
    before = past[-1] if past else {}
    filters = score.convolution.weight.chunk(pair.heads)[pair.head][:, 0]  # (filters, kernel)
    centre = filters.shape[1] // 2
    features = sum(
        (filters[:, i] * before.get(pair.s + i - centre, torch.zeros(())) for i in range(filters.shape[1])),
        torch.zeros(len(filters)),
    )
    return additive.vector[pair.head] @ torch.tanh(
        additive.project_query.weight[rows] @ pair.q
        + additive.project_key.weight[rows] @ pair.k
        + score.from_features.weight[pair.head] @ features
        + score.from_features.bias[pair.head]
    )


def rows_of(additive: Any, pair: Pair) -> slice:
    return slice(pair.head * len(additive.vector[0]), (pair.head + 1) * len(additive.vector[0]))


def monotonic(normalizer: Any, scores: dict[int, Tensor], past: Past) -> dict[int, Tensor]:
    """Raffel et al. 2017, eq. 9: a sum over all keys k at which the last step may have stopped, key by key."""
    stop = {s: 1 / (1 + (-(score + normalizer.offset)).exp()) for s, score in scores.items()}
    found = {}
    for j in scores:
        total = torch.zeros(())
        for k in range(j + 1):
            before = past[-1].get(k, torch.zeros(())) if past else torch.tensor(float(k == 0))
            passed = torch.ones(())
            for between in range(k, j):
                passed = passed * (1 - stop[between]) if between in stop else passed  # a hidden key is passed by
            total = total + before * passed
        found[j] = stop[j] * total
    return found


def walk(chosen: dict[int, bool], stopped: int | None) -> int | None:
    """Raffel et al. 2017, algorithm 1: the first chosen key from where the last step stopped; None: there is none."""
    return next((j for j, yes in sorted(chosen.items()) if stopped is not None and j >= stopped and yes), None)


# By class.
HISTORY_SCORES = {"CoverageScore": coverage, "LocationSensitiveScore": location_sensitive}
HISTORY_NORMALIZERS = {"MonotonicNormalizer": monotonic}
