"""ALiBi, compared with the numbers and the code of the paper."""

from __future__ import annotations

import math

import pytest
import torch

from seq2seq_attn.position.alibi import AlibiPosition, LinearBias


def linear_bias(heads: int) -> LinearBias:
    part = AlibiPosition(dim=11 * heads).relative(num_heads=heads, head_dim=11)
    assert isinstance(part, LinearBias)
    return part


def slopes_of_the_papers_code(heads: int) -> list[float]:
    """`get_slopes` of github.com/ofirpress/attention_with_linear_biases."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return slopes_of_the_papers_code(power) + slopes_of_the_papers_code(2 * power)[::2][: heads - power]


def slopes(heads: int) -> list[float]:
    """Return the slope of each head."""
    return (-linear_bias(heads).bias(None, torch.tensor([1]), torch.tensor([0]))).flatten().tolist()


def test_eight_heads_have_slopes_from_a_half_to_a_256th() -> None:
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("heads", range(1, 21))
def test_slopes_are_those_of_the_papers_code_for_every_number_of_heads(heads: int) -> None:
    assert slopes(heads) == pytest.approx(slopes_of_the_papers_code(heads), rel=1e-14)


def test_a_bias_by_hand() -> None:
    # Two heads have slopes 2^-4 and 2^-8; the query is at position 2.
    found = linear_bias(2).bias(None, torch.tensor([2]), torch.arange(5))
    expected = [[[[-2 / 16, -1 / 16, 0, -1 / 16, -2 / 16]], [[-2 / 256, -1 / 256, 0, -1 / 256, -2 / 256]]]]
    assert found.tolist() == expected


@pytest.mark.usefixtures("double")
def test_both_directions_cost_the_slope_times_the_distance() -> None:
    query_position, key_position = torch.tensor([3, 0, 7, 1009, 4]), torch.arange(7)
    found = linear_bias(6).bias(torch.randn(2, 6, 5, 11), query_position, key_position)
    assert found.shape == (1, 6, 5, 7)
    for head, slope in enumerate(slopes_of_the_papers_code(6)):
        for t, query in enumerate(query_position.tolist()):
            for s, key in enumerate(key_position.tolist()):
                assert found[0, head, t, s].item() == pytest.approx(-slope * abs(query - key), rel=1e-12)


def test_slopes_and_distances_are_not_rounded_before_they_are_multiplied() -> None:
    exact = torch.tensor([-1009 * slope for slope in slopes_of_the_papers_code(12)])
    torch.set_default_dtype(torch.bfloat16)  # as `trainer.precision=bf16-true` does
    try:
        found = linear_bias(12).bfloat16().bias(None, torch.tensor([1009]), torch.tensor([0]))
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found.flatten(), exact, rtol=1e-6, atol=0)
