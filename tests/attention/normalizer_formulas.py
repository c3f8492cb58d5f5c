"""Every normalizer as its paper writes it, for one row of the scores that may be seen, in float64."""

from __future__ import annotations

from typing import Any

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


def adaptive_entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    """Correia et al. 2019, section 3: the root by bisection; a step of Newton gives it the derivative of a root."""

    def powers(tau: Tensor) -> Tensor:
        return ((alpha - 1) * scores - tau).relu() ** (1 / (alpha - 1))

    best = ((alpha - 1) * scores).max().detach()
    low, high = best - 1, best
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if powers(middle).sum() > 1 else (low, middle)
    slope = -(powers(low) ** (2 - alpha)).sum().detach() / (alpha - 1).detach()
    return powers(low - (powers(low).sum() - 1) / slope)


def sigmoid(scores: Tensor) -> Tensor:
    """Ramapuram et al. 2024, eq. 3 with b = -log n."""
    return 1 / (1 + len(scores) * (-scores).exp())


def relu(scores: Tensor) -> Tensor:
    """Wortsman et al. 2023, section 3, with alpha = 1."""
    return scores.relu() / len(scores)


def identity(scores: Tensor) -> Tensor:
    """Shen et al. 2018, section 3.2: queries and keys divided by the root of n each."""
    return scores / len(scores)


def scalable_softmax(scores: Tensor, scale: Tensor) -> Tensor:
    """Nakanishi 2025: powers of n."""
    powers = len(scores) ** (scale * scores)
    return powers / powers.sum()


def stick_breaking(scores: Tensor) -> Tensor:
    """Tan et al. 2025: from the last key on, each takes a share of the rest of the stick."""
    rest, weights = torch.ones(()), []
    for score in scores.flip(0):
        weights.append(rest / (1 + (-score).exp()))
        rest = rest - weights[-1]
    return torch.stack(weights[::-1])


def softmax_one(scores: Tensor) -> Tensor:
    """Miller 2023."""
    return scores.exp() / (1 + scores.exp().sum())


def sink(scores: Tensor, logit: Tensor) -> Tensor:
    """gpt-oss: the softmax of the scores and the logit, without the last weight."""
    return softmax(torch.cat([scores, logit[None]]))[:-1]


def top_k(scores: Tensor, k: int) -> Tensor:
    """Zhao et al. 2019, eq. 3-5, with the first of equal scores."""
    best = sorted(range(len(scores)), key=lambda position: (-scores[position].item(), position))[:k]
    return torch.zeros(len(scores)).index_put((torch.tensor(best),), softmax(scores[best]))


def weights_of(normalizer: Any, scores: Tensor, head: int = 0) -> Tensor:
    """The weights of one row of one head, by the class of its normalizer."""
    if type(normalizer).__name__ == "AdaptiveEntmaxNormalizer":
        return adaptive_entmax(scores, 1 + normalizer.logits[head].sigmoid())
    if type(normalizer).__name__ == "ScalableSoftmaxNormalizer":
        return scalable_softmax(scores, normalizer.scales[head])
    if type(normalizer).__name__ == "SinkNormalizer":
        return sink(scores, normalizer.logits[head])
    if type(normalizer).__name__ == "TopKNormalizer":
        return top_k(scores, normalizer.k)
    return NORMALIZERS[type(normalizer).__name__](scores)


# By class, in evaluation mode; those that take nothing but scores.
NORMALIZERS = {
    "Entmax15Normalizer": entmax15,
    "HardGumbelNormalizer": hard,
    "HardNormalizer": hard,
    "IdentityNormalizer": identity,
    "ReluNormalizer": relu,
    "SigmoidNormalizer": sigmoid,
    "SoftmaxNormalizer": softmax,
    "SoftmaxOneNormalizer": softmax_one,
    "SparsemaxNormalizer": sparsemax,
    "StickBreakingNormalizer": stick_breaking,
}
