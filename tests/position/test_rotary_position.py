"""Rotary positions, compared with complex numbers and loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.rotary import RotaryPosition, Rotation

B, H, T, WIDTH = 2, 3, 5, 14
POSITION = torch.tensor([0, 1, 4, 19, 1009])


def rotation(width: int = WIDTH, base: float = 10000.0) -> Rotation:
    part = RotaryPosition(dim=H * width, base=base).relative(num_heads=H, head_dim=width)
    assert isinstance(part, Rotation)
    return part


def turned(x: Tensor, position: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate pair by pair, one number at a time."""
    half, rows = x.shape[-1] // 2, []
    for row in x.reshape(-1, *x.shape[-2:]):
        for vector, p in zip(row, position.tolist(), strict=True):
            left, right = [], []
            for i in range(half):
                angle = p * base ** (-2 * i / (2 * half))
                left.append(vector[i] * math.cos(angle) - vector[i + half] * math.sin(angle))
                right.append(vector[i] * math.sin(angle) + vector[i + half] * math.cos(angle))
            rows.append(torch.stack(left + right))
    return torch.stack(rows).view(x.shape)


def test_a_position_is_its_angle_in_the_first_pair() -> None:
    x = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    found = rotation(2).rotate(x, torch.tensor([1, 2]))[0, 0]
    expected = torch.tensor([[math.cos(1), math.sin(1)], [-math.sin(2), math.cos(2)]])
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("double")
def test_it_equals_its_formula_values_and_gradients() -> None:
    x, upstream = torch.randn(B, H, T, WIDTH, requires_grad=True), torch.randn(B, H, T, WIDTH)
    found, expected = rotation(base=37.0).rotate(x, POSITION), turned(x, POSITION, 37.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad((y * upstream).sum(), x)[0] for y in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_it_is_a_product_with_a_complex_number_of_length_one() -> None:
    x = torch.randn(B, H, T, WIDTH)
    left, right = x.chunk(2, -1)
    frequency = torch.tensor([10000 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)])
    unit = torch.polar(torch.ones(T, WIDTH // 2), POSITION[:, None] * frequency)
    product = torch.complex(left, right) * unit
    found = rotation().rotate(x, POSITION)
    torch.testing.assert_close(found, torch.cat([product.real, product.imag], -1), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_norms_stay_and_position_0_changes_nothing() -> None:
    x = torch.randn(B, H, T, WIDTH)
    found = rotation().rotate(x, POSITION)
    torch.testing.assert_close(found.norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-12)
    assert torch.equal(found[:, :, 0], x[:, :, 0])


@pytest.mark.usefixtures("double")
def test_a_product_depends_on_the_distance_alone() -> None:
    part, query, key = rotation(), torch.randn(1, 1, 1, WIDTH), torch.randn(1, 1, 1, WIDTH)
    products = {
        (m, n): (part.rotate(query, torch.tensor([m])) * part.rotate(key, torch.tensor([n]))).sum()
        for m, n in [(3, 0), (1003, 1000), (0, 3), (4, 0)]
    }
    torch.testing.assert_close(products[1003, 1000], products[3, 0], rtol=0, atol=1e-11)
    assert abs(products[0, 3] - products[3, 0]) > 1e-3
    assert abs(products[4, 0] - products[3, 0]) > 1e-3


def test_a_model_in_half_precision_keeps_its_angles() -> None:
    x = torch.ones(1, 1, 1, WIDTH)
    expected = rotation().rotate(x, torch.tensor([1009])).bfloat16()
    found = rotation().bfloat16().rotate(x.bfloat16(), torch.tensor([1009]))
    assert torch.equal(found, expected)
    assert torch.equal(rotation().bfloat16().float().rotate(x, torch.tensor([1009])).bfloat16(), expected)


def test_heads_of_odd_width_are_refused() -> None:
    with pytest.raises(
        UserError,
        match=r"^position=rotary needs heads of even width, got 3 of width 7; "
        r"change attention\.num_heads or the model's width, or use position=alibi$",
    ):
        rotation(7)
