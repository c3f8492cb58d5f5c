"""A jump of the loss is said once, with where it jumped from; the noise of training is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq_attn.callback.loss_spike import READ_EVERY, LossSpike
from seq2seq_attn.errors import UserError


def callback(window_steps: int = 100) -> LossSpike:
    return LossSpike(deviations=6, ratio=1.5, window_steps=window_steps)


def spikes(losses: Any, spike: LossSpike) -> list[int]:
    return [step for step, loss in enumerate(losses) if spike.is_spike(float(loss))]


def feed(losses: Any, spike: LossSpike, first: int = 0) -> None:
    """As steps of training do."""
    for step, loss in enumerate(losses, start=first):
        module: Any = SimpleNamespace(update_mean=SimpleNamespace(mean=lambda loss=loss: torch.tensor(loss)))
        trainer: Any = SimpleNamespace(global_step=step)
        spike.on_before_optimizer_step(trainer, module, None)


def said(losses: Any, spike: LossSpike, caplog: pytest.LogCaptureFixture, first: int = 0) -> list[str]:
    feed(losses, spike, first)
    spike.on_train_end(None, None)
    return [record.message for record in caplog.records]


@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
def test_noise_of_any_size_is_no_spike(share: float) -> None:
    noise = np.random.default_rng(1).standard_normal(10_000)
    assert spikes(3.0 * (1 + share * noise), callback()) == []


def test_a_loss_that_falls_and_comes_in_waves_of_short_and_long_batches_is_no_spike() -> None:
    steps = np.arange(5_000)
    falling = 1.5 + 6.0 * np.exp(-steps / 300)
    waves = 1 + 0.2 * np.sin(steps / 7) + 0.05 * np.random.default_rng(2).standard_normal(5_000)
    assert spikes(falling * waves, callback()) == []


def test_a_jump_is_a_spike_at_its_step_whatever_the_scale() -> None:
    noise = 1 + 0.1 * np.random.default_rng(3).standard_normal(500)
    for scale in (0.01, 1.0, 100.0):
        losses = scale * noise
        losses[311] *= 2
        assert spikes(losses, callback()) == [311]


def test_the_bound_by_hand() -> None:
    # After 2, 4, 2, 4, ...: mean 3, standard deviation 1, so 9 by deviations and 4.5 by ratio.
    for loss, expected in ((8.9, []), (9.2, [1000])):
        assert spikes([*[2.0, 4.0] * 500, loss], callback(window_steps=1000)) == expected
    # After 3, 3, 3, ...: no deviation, so 4.5 by ratio.
    for loss, expected in ((4.4, []), (4.6, [500])):
        assert spikes([*[3.0] * 500, loss], callback()) == expected


def test_nothing_is_said_of_the_first_steps() -> None:
    assert spikes([3.0] * 99 + [30.0], callback()) == []
    assert spikes([3.0] * 100 + [30.0], callback()) == [100]


def test_a_spike_hardly_moves_the_mean_and_a_loss_that_stays_up_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    assert spikes([3.0] * 200 + [3e6, 3.0, 30.0], callback()) == [200, 202]
    losses = [3.0] * 200 + [9.0] * 300 + [3.0] * 100 + [30.0]
    assert said(losses, callback(), caplog) == [
        "step 200: the loss jumped to 9.000, from a running mean of 3.000",
        next(record.message for record in caplog.records if record.message.startswith("step 600: ")),
    ]


def test_a_loss_that_is_not_finite_is_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    spike = callback()
    assert said([3.0] * 150 + [float("nan"), float("inf")] + [3.0] * 9, spike, caplog) == []
    assert (spike.losses, spike.mean) == (159, 3.0)


def test_a_run_that_is_stopped_between_two_looks_and_resumed_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    losses = list(3.0 + np.random.default_rng(4).standard_normal(400) / 5)
    losses[READ_EVERY * 20 + 3] = 11.0
    whole = said(losses, callback(), caplog)
    assert len(whole) == 1
    caplog.clear()
    before, after = callback(), callback()
    stop = READ_EVERY * 13 + 5
    feed(losses[:stop], before)
    after.load_state_dict(before.state_dict())
    assert said(losses[stop:], after, caplog, first=stop) == whole
    assert after.losses == len(losses)


@pytest.mark.parametrize("wrong", [{"deviations": 0}, {"ratio": 0.9}, {"window_steps": 1}])
def test_a_rule_that_finds_spikes_everywhere_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"finds a spike everywhere or nowhere; use 6, 1.5 and 100$"):
        LossSpike(**({"deviations": 6, "ratio": 1.5, "window_steps": 100} | wrong))
