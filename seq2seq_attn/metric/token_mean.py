"""A mean over target tokens, summed in integers, so that it is the same however processes share the sentences."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

UNITS = 2**24  # in 1; rounding changes the sum of a batch in the eighth decimal
LIMIT = 2.0**26  # of the sum of a batch; thousands of them fit into an integer


@final
class TokenMean(Metric):
    """A mean of batch sums rounded to integers, whose order does not matter. NaN if one is not finite or over LIMIT."""

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    total: Tensor
    tokens: Tensor
    broken: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("total", "tokens", "broken"):
            self.add_state(state, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, value: Float[Tensor, "..."], weight: int = 1) -> None:
        """Add a batch.

        Args:
            value: a number for each token, or the mean of several.
            weight: how many tokens each number stands for.
        """
        batch = float(value.detach().cpu().double().sum()) * weight
        self.tokens = self.tokens + value.numel() * weight
        if abs(batch) < LIMIT:
            self.total = self.total + round(batch * UNITS)
        else:
            self.broken = self.broken + 1

    def compute(self) -> Float[Tensor, ""]:
        """Return the mean in float64; NaN if nothing was added."""
        broken = bool(self.broken) or not self.tokens
        mean = torch.nan if broken else int(self.total) / UNITS / int(self.tokens)
        return torch.tensor(mean, dtype=torch.float64)
