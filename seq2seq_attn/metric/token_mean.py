"""A mean over target tokens, in integers: the same to the last digit, whichever process scored which sentence."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

UNITS = 2**24  # in one: what a batch's sum loses is in the eighth decimal position
LIMIT = 2.0**26  # of a batch's sum: thousands of such fit into an integer, and no figure worth reading comes near


@final
class TokenMean(Metric):
    """Sums of batches, rounded, since the sum of integers knows no order. NaN if one is not finite, or beyond LIMIT."""

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
        """Adds a batch.

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
        """In float64; NaN too where nothing was added."""
        broken = bool(self.broken) or not self.tokens
        mean = torch.nan if broken else int(self.total) / UNITS / int(self.tokens)
        return torch.tensor(mean, dtype=torch.float64)
