"""Learning-rate schedules with a linear warm-up, as factors of the optimizer's learning rate per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def inverse_sqrt(optimizer: Optimizer, *, warmup_steps: Annotated[int, "[0, 1000000000]"]) -> LambdaLR:
    """Return lr * min(step / warmup_steps, sqrt(warmup_steps / step)). Vaswani et al. 2017, eq. 3."""

    def factor(done: int) -> float:
        step = done + 1
        return min(step / max(1, warmup_steps), math.sqrt(max(1, warmup_steps) / step))

    return LambdaLR(optimizer, factor)


def cosine(
    optimizer: Optimizer,
    *,
    warmup_steps: Annotated[int, "[0, 1000000000]"],
    total_steps: int,
    final_share: Annotated[float, "[0, 1]"] = 0.0,
) -> LambdaLR:
    """Return a linear warm-up to lr, then a cosine decay to `final_share` * lr at `total_steps`.

    Loshchilov and Hutter 2017, eq. 5.
    """

    def decay(progress: float) -> float:
        return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress))

    return warmed_up(optimizer, warmup_steps, total_steps, decay)


def linear(
    optimizer: Optimizer,
    *,
    warmup_steps: Annotated[int, "[0, 1000000000]"],
    total_steps: int,
    final_share: Annotated[float, "[0, 1]"],
) -> LambdaLR:
    """Return a linear warm-up to lr, then a linear decay to `final_share` * lr at `total_steps`. Devlin et al. 2019."""
    return warmed_up(optimizer, warmup_steps, total_steps, lambda progress: 1 - (1 - final_share) * progress)


def wsd(
    optimizer: Optimizer,
    *,
    warmup_steps: Annotated[int, "[0, 1000000000]"],
    total_steps: int,
    decay_share: Annotated[float, "(0, 1]"],
    decay_form: Literal["linear", "1-sqrt"],
    final_share: Annotated[float, "[0, 1]"],
) -> LambdaLR:
    """Return a linear warm-up to lr, lr itself, then a decay to `final_share` * lr. Hu et al. 2024, eq. 1.

    The forms of the decay are those of Hägele et al. 2024, section 3.

    Args:
        decay_share: of all steps, the last of which decay; those of the warm-up do not.
    """
    power = {"linear": 1.0, "1-sqrt": 0.5}[decay_form]
    return warmed_up(
        optimizer, warmup_steps, total_steps, lambda progress: 1 - (1 - final_share) * progress**power, decay_share
    )


def warmed_up(
    optimizer: Optimizer, warmup_steps: int, total_steps: int, decay: Callable[[float], float], decay_share: float = 1.0
) -> LambdaLR:
    """Return a linear warm-up to lr, lr itself until the last `decay_share` of all steps, then a decay.

    Args:
        decay: the factor at a share of the decay's steps, from 0 to 1.
    """
    # The warm-up takes at most a fifth of a short run, so that it reaches the full rate.
    warmup_steps = max(1, min(warmup_steps, total_steps // 5))
    start = max(warmup_steps, total_steps - max(1, round(decay_share * total_steps)))

    def factor(done: int) -> float:
        step = done + 1
        if step <= warmup_steps:
            return step / warmup_steps
        return decay(min(1.0, max(0, step - start) / max(1, total_steps - start)))

    return LambdaLR(optimizer, factor)
