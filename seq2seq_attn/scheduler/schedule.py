"""Learning-rate schedules with a linear warm-up, as factors of the optimizer's learning rate per step."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def inverse_sqrt(optimizer: Optimizer, *, warmup_steps: int) -> LambdaLR:
    """Return lr * min(step / warmup_steps, sqrt(warmup_steps / step)). Vaswani et al. 2017, eq. 3."""

    def factor(done: int) -> float:
        step = done + 1
        return min(step / max(1, warmup_steps), math.sqrt(max(1, warmup_steps) / step))

    return LambdaLR(optimizer, factor)


def cosine(optimizer: Optimizer, *, warmup_steps: int, total_steps: int) -> LambdaLR:
    """Return a linear warm-up to lr, then a cosine decay to 0 at `total_steps`. Loshchilov and Hutter 2017, eq. 5."""
    # The warm-up takes at most a fifth of a short run, so that it reaches the full rate.
    warmup_steps = max(1, min(warmup_steps, total_steps // 5))

    def factor(done: int) -> float:
        step = done + 1
        if step <= warmup_steps:
            return step / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        return 0.5 * (1 + math.cos(math.pi * progress))

    return LambdaLR(optimizer, factor)


def takes_total(scheduler: partial[Any]) -> bool:
    """Return whether a schedule needs the length of the run."""
    return "total_steps" in inspect.signature(scheduler.func).parameters
