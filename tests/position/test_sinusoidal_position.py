"""Sinusoids, compared with numbers, and the growing table, compared with one computed at once."""

from __future__ import annotations

import math

import pytest
import torch

from seq2seq_attn.position.sinusoidal import SinusoidalPosition, sinusoids

D = 7


def sinusoidal(join: str = "add", dim: int = D) -> SinusoidalPosition:
    return SinusoidalPosition(dim=dim, join=join, base=10000.0)


def formula(length: int, dim: int) -> torch.Tensor:
    table = torch.zeros(length, dim, dtype=torch.float64)
    for p in range(length):
        for column in range(dim):
            angle = p / 10000 ** (2 * (column // 2) / dim)
            table[p, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


def test_four_columns_by_hand() -> None:
    expected = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.841471, 0.540302, 0.00999983, 0.99995]])
    found = sinusoidal(dim=4)(torch.zeros(1, 2, 4))
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_the_table_equals_its_formula(dim: int) -> None:
    torch.testing.assert_close(sinusoids(211, dim, 10000.0), formula(211, dim), rtol=0, atol=1e-12)


def test_the_position_p_plus_k_is_one_linear_map_of_the_position_p() -> None:
    table, shift = sinusoids(50, 6, 10000.0), 7
    angles = [shift / 10000 ** (2 * i / 6) for i in range(3)]
    rotations = [torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles]
    shifted = table[:-shift] @ torch.block_diag(*rotations).double().mT
    torch.testing.assert_close(shifted, table[shift:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_far_positions_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    # In float32 the angle 100003 would be off by up to 0.004.
    found = sinusoidal()(torch.zeros(1, 1, D, dtype=dtype), start=100_003)[0, 0]
    angles = [100_003 / 10000 ** (2 * i / D) for i in range(4)]
    expected = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)][:D], dtype=torch.float64)
    torch.testing.assert_close(found, expected.to(dtype), rtol=0, atol=0)


def test_a_base_sets_the_wavelengths() -> None:
    found = SinusoidalPosition(dim=4, join="add", base=100.0)(torch.zeros(1, 1, 4), start=3)[0, 0]
    expected = torch.tensor([math.sin(3), math.cos(3), math.sin(0.3), math.cos(0.3)])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float64])
def test_casting_the_model_and_back_does_not_round(cast: torch.dtype) -> None:
    positions, embedded = sinusoidal(), torch.zeros(1, 5, D)
    before = positions(embedded)
    positions.to(cast)
    assert torch.equal(positions(embedded.to(cast))[0], formula(5, D).to(cast))
    positions.float()
    assert torch.equal(positions(embedded), before)


def test_another_device_gets_its_own_table() -> None:
    positions, embedded = sinusoidal(), torch.zeros(1, 5, D)
    before = positions(embedded)
    assert positions(embedded.to("meta")).device.type == "meta"
    assert torch.equal(positions(embedded), before)


def test_the_table_is_rarely_recomputed_and_not_a_buffer_of_ddp() -> None:
    positions, made = sinusoidal(), set()
    for t in range(300):
        positions(torch.zeros(1, 1, D), start=t)
        made.add(positions.table.data_ptr())
        assert len(positions.table) > t
    assert len(positions.table) == 512
    assert len(made) <= 10
    assert not list(positions.buffers())


def test_a_table_made_in_validation_serves_in_training() -> None:
    positions = sinusoidal("concat")
    with torch.inference_mode():
        positions(torch.randn(1, 5, D))
    positions(torch.randn(1, 5, D)).square().sum().backward()
    assert positions.join.project.weight.grad.isfinite().all()


def test_gradients_reach_the_embeddings_unchanged() -> None:
    embedded, upstream = torch.randn(2, 5, D, requires_grad=True), torch.randn(2, 5, D)
    (sinusoidal()(embedded) * upstream).sum().backward()
    assert torch.equal(embedded.grad, upstream)
