"""Sums that do not depend on the order of batches, to the last bit."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.metric.token_mean import LIMIT, TokenMean


def mean_of(batches: list[tuple[float, int]]) -> float:
    metric = TokenMean()
    for value, tokens in batches:
        metric.update(torch.tensor(value), weight=tokens)
    return metric.compute().item()


def test_a_batch_weighs_as_its_tokens() -> None:
    assert mean_of([(2.0, 3), (0.5, 2)]) == 7 / 5


def test_the_order_of_batches_changes_no_bit_although_it_changes_that_of_a_sum_of_floats() -> None:
    batches = [(2.0**25, 1), (1.0, 1), (1.0, 1), (1.0, 1)]
    floats = torch.tensor([value * tokens for value, tokens in batches])
    assert sum(floats) != sum(floats.flip(0))
    assert mean_of(batches) == mean_of(batches[::-1]) == (2**25 + 3) / 4


def test_numbers_of_single_tokens_count_as_many() -> None:
    metric = TokenMean()
    metric.update(torch.tensor([1.0, 2.0, 6.0]))
    assert metric.compute() == 3


def test_a_mean_is_right_to_the_seventh_digit_and_a_sum_of_float32_is_of_float64() -> None:
    assert mean_of([(0.1, 3), (0.7, 4)]) == pytest.approx((0.1 * 3 + 0.7 * 4) / 7, rel=1e-7)
    metric = TokenMean()
    metric.update(torch.tensor([2.0**24, 1.0, 1.0, 1.0]))
    assert metric.compute() == (2**24 + 3) / 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), LIMIT])
def test_a_number_that_is_none_is_not_hidden_in_the_mean(value: float) -> None:
    metric = TokenMean()
    metric.update(torch.tensor(2.0), weight=3)
    metric.update(torch.tensor(value), weight=1)
    assert metric.compute().isnan()
    metric.reset()
    metric.update(torch.tensor(2.0), weight=3)
    assert metric.compute() == 2


def test_it_is_used_on_both_sides_of_inference_mode() -> None:
    metric = TokenMean()
    with torch.inference_mode():
        metric.update(torch.tensor(2.0))
        metric.reset()
        metric.update(torch.tensor(4.0))
    metric.update(torch.tensor(6.0))
    assert metric.compute() == 5
