"""Worked rates of the schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from seq2seq_attn.scheduler.schedule import cosine, inverse_sqrt


def rates(schedule: Callable[[torch.optim.Optimizer], LambdaLR], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, found = schedule(optimizer), []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return found


def test_inverse_sqrt_rises_to_the_rate_and_falls_with_the_root_of_the_step() -> None:
    found = rates(partial(inverse_sqrt, warmup_steps=4), 16)
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[15] == 0.5  # sqrt(4 / 16)


def test_cosine_rises_to_the_rate_and_falls_to_nothing() -> None:
    found = rates(partial(cosine, warmup_steps=2, total_steps=10), 10)
    assert found[:2] == [0.5, 1.0]
    assert found[3] == pytest.approx(0.5 + 0.5 * 2**-0.5)  # a quarter of the way from the peak to the end
    assert found[5] == pytest.approx(0.5)  # half-way
    assert found[9] == pytest.approx(0.0)


def test_a_short_run_warms_up_for_a_fifth_of_it_at_most() -> None:
    assert rates(partial(cosine, warmup_steps=1000, total_steps=10), 2) == [0.5, 1.0]
