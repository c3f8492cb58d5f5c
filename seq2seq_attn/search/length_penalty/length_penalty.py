"""The contract of a length penalty: lengths to what log-probabilities are divided by."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor


class LengthPenalty(ABC):
    """Never falls as the length grows: a search counts on it to know what no longer translation can reach."""

    @abstractmethod
    def __call__(self, length: Int[Tensor, "lengths"]) -> Float[Tensor, "lengths"]:
        """More than 0, in float64; `length` is in tokens, end token counted, so at least 1."""
