"""Every normalizer as its paper writes it, for one row of the scores that may be seen, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


def hard(scores: Tensor) -> Tensor:
    return torch.tensor(
        [float(position == scores.tolist().index(max(scores.tolist()))) for position in range(len(scores))]
    )


def sparsemax(scores: Tensor) -> Tensor:
    """Martins and Astudillo 2016, algorithm 1: the largest support whose least score is above its threshold."""
    z = scores.sort(descending=True).values
    size = max(k for k in range(1, len(z) + 1) if 1 + k * z[k - 1] > z[:k].sum())
    return (scores - (z[:size].sum() - 1) / size).relu()


def entmax15(scores: Tensor) -> Tensor:
    """Peters et al. 2019, algorithm 2: the first support whose threshold no score behind it reaches."""
    z = scores.sort(descending=True).values / 2
    for size in range(1, len(z) + 1):
        mean = z[:size].mean()
        threshold = mean - ((1 - (z[:size] - mean).square().sum()) / size).sqrt()
        if size == len(z) or z[size] <= threshold:
            break
    return (scores / 2 - threshold).relu().square()


# By class, in evaluation mode.
NORMALIZERS = {
    "Entmax15Normalizer": entmax15,
    "HardGumbelNormalizer": hard,
    "HardNormalizer": hard,
    "SoftmaxNormalizer": softmax,
    "SparsemaxNormalizer": sparsemax,
}
