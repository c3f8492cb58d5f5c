"""Worked rates of the schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from seq2seq_attn.scheduler.schedule import cosine, inverse_sqrt, linear, wsd


def rates(schedule: Callable[[torch.optim.Optimizer], LambdaLR], steps: int) -> list[float]:
    return advance(schedule(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)), steps)


def advance(scheduler: LambdaLR, steps: int) -> list[float]:
    """The rates of so many steps."""
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_inverse_sqrt_rises_to_the_rate_and_falls_with_the_root_of_the_step() -> None:
    found = rates(partial(inverse_sqrt, warmup_steps=4), 16)
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[15] == 0.5  # sqrt(4 / 16)


def test_inverse_sqrt_without_warm_up_begins_at_the_rate() -> None:
    assert rates(partial(inverse_sqrt, warmup_steps=0), 4) == pytest.approx([n**-0.5 for n in range(1, 5)])


def test_cosine_rises_to_the_rate_and_falls_to_nothing_or_a_share() -> None:
    found = rates(partial(cosine, warmup_steps=2, total_steps=10), 10)
    assert found[:2] == [0.5, 1.0]
    assert found[3] == pytest.approx(0.5 + 0.5 * 2**-0.5)  # a quarter of the way from the peak to the end
    assert found[5] == pytest.approx(0.5)  # half-way
    assert found[9] == pytest.approx(0.0)
    above = rates(partial(cosine, warmup_steps=2, total_steps=10, final_share=0.2), 12)
    assert above[:2] == [0.5, 1.0]
    assert above[2:10] == pytest.approx([0.2 + 0.8 * rate for rate in found[2:]])
    assert above[9:] == pytest.approx([0.2, 0.2, 0.2])


def test_a_short_run_warms_up_for_a_fifth_of_it_at_most() -> None:
    assert rates(partial(cosine, warmup_steps=1000, total_steps=10), 2) == [0.5, 1.0]


def test_linear_rises_to_the_rate_and_falls_in_equal_steps_to_nothing_or_a_share() -> None:
    found = rates(partial(linear, warmup_steps=2, total_steps=12, final_share=0.0), 14)
    assert found[:2] == [0.5, 1.0]
    assert found[2:12] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    assert found[12:] == [0.0, 0.0]  # a run that is resumed beyond its end
    found = rates(partial(linear, warmup_steps=2, total_steps=12, final_share=0.2), 13)
    assert found[6] == pytest.approx(0.6)  # half-way from 1 to 0.2
    assert found[11:] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("form", "decay"),
    [("linear", [0.75, 0.5, 0.25, 0.0]), ("1-sqrt", [1 - 0.25**0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0.0])],
)
def test_wsd_rises_stays_and_falls_over_the_last_share_of_the_steps(form: str, decay: list[float]) -> None:
    schedule = partial(wsd, warmup_steps=4, total_steps=20, decay_share=0.2, decay_form=form, final_share=0.0)
    found = rates(schedule, 22)
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[4:16] == [1.0] * 12
    assert found[16:20] == pytest.approx(decay)
    assert found[20:] == [0.0, 0.0]
    above = rates(partial(schedule.func, **schedule.keywords | {"final_share": 0.5}), 20)
    assert above[16:] == pytest.approx([1 - (1 - rate) / 2 for rate in decay])


def test_wsd_decays_in_the_last_step_where_its_share_is_less_than_half_a_step() -> None:
    schedule = partial(wsd, warmup_steps=1, total_steps=4, decay_share=0.1, decay_form="linear", final_share=0.25)
    assert rates(schedule, 5) == [1.0, 1.0, 1.0, 0.25, 0.25]


def test_wsd_that_decays_from_the_warm_up_on_is_linear() -> None:
    whole = partial(wsd, warmup_steps=3, total_steps=17, decay_share=1.0, decay_form="linear", final_share=0.1)
    assert rates(whole, 17) == rates(partial(linear, warmup_steps=3, total_steps=17, final_share=0.1), 17)


@pytest.mark.parametrize("stop", [2, 7, 18])  # within the warm-up, the plateau and the decay
def test_a_schedule_that_is_resumed_has_the_rates_that_it_would_have_had(stop: int) -> None:
    schedule = partial(wsd, warmup_steps=4, total_steps=20, decay_share=0.2, decay_form="1-sqrt", final_share=0.0)
    first, again = (torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(2))
    before = schedule(first)
    advance(before, stop)
    after = schedule(again)
    after.load_state_dict(before.state_dict())
    again.load_state_dict(first.state_dict())
    assert advance(after, 20 - stop) == rates(schedule, 20)[stop:]
