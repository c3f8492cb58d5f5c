"""The contract of a length penalty, the divisor of a log-probability as a function of the length."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor


class LengthPenalty(ABC):
    """A function that does not decrease with the length; a search relies on this to bound longer translations."""

    @abstractmethod
    def __call__(self, length: Int[Tensor, " lengths"]) -> Float[Tensor, " lengths"]:
        """Return divisors greater than 0, in float64; `length` is in tokens, end token included, so at least 1."""
