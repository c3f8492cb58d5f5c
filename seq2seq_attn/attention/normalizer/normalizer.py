"""The contract of a normalizer: scores and what may be seen, to weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Normalized(NamedTuple):
    """Weights, exactly 0 where a key is hidden, all 0 in a row that sees nothing.

    A normalizer that samples also gives the log-probability of its choice and the entropy it chose from,
    each (batch, heads, target), in nats, 0 in a row that sees nothing.
    """

    weights: Float[Tensor, "*rows keys"]
    log_prob: Float[Tensor, "*rows"] | None = None
    entropy: Float[Tensor, "*rows"] | None = None


class Normalizer(nn.Module, ABC):
    """Attributes: is_softmax: whether a fused kernel for softmax computes the same."""

    is_softmax: ClassVar[bool] = False

    @abstractmethod
    def forward(
        self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
    ) -> Normalized: ...
