"""KERPLE's bias: pair by pair by the formula of the paper, by hand, its gradients and its first values."""

from __future__ import annotations

import math

import pytest
import torch
from configs import model_of

from seq2seq_attn.position.kerple import KerplePosition, LogarithmicBias

H = 3


def bias(num_heads: int = H) -> LogarithmicBias:
    part = KerplePosition(dim=11 * num_heads).relative(num_heads=num_heads, head_dim=11)
    assert isinstance(part, LogarithmicBias)
    return part


@pytest.mark.usefixtures("double")
def test_it_equals_the_formula_pair_by_pair_values_and_gradients() -> None:
    part = bias()
    query_position, key_position = torch.tensor([0, 3, 1009, 40, 4]), torch.tensor([0, 1, 2, 5, 19, 50, 300])
    factors, rates = (log.detach().exp().requires_grad_() for log in (part.log_factors, part.log_rates))
    expected = torch.stack(
        [
            torch.stack([-factors * torch.log(1 + rates * abs(query - key)) for key in key_position.tolist()], -1)
            for query in query_position.tolist()
        ],
        1,
    )[None]
    found = part.bias(None, query_position, key_position)
    assert found.shape == (1, H, 5, 7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    ours = torch.autograd.grad((found * upstream).sum(), (part.log_factors, part.log_rates))
    theirs = torch.autograd.grad((expected * upstream).sum(), (factors, rates))
    for by_log, by_number, number in zip(ours, theirs, (factors, rates), strict=True):
        torch.testing.assert_close(by_log, by_number * number, rtol=1e-12, atol=1e-12)  # d x / d log x = x


@pytest.mark.usefixtures("double")
def test_a_bias_by_hand() -> None:
    part = bias(2)
    part.log_factors.data, part.log_rates.data = torch.tensor([1.0, 2.0]).log(), torch.tensor([1.0, 0.5]).log()
    found = part.bias(None, torch.tensor([4]), torch.tensor([0, 3, 4, 7]))
    first = [-math.log(5), -math.log(2), 0.0, -math.log(4)]
    second = [-2 * math.log(3), -2 * math.log(1.5), 0.0, -2 * math.log(2.5)]
    torch.testing.assert_close(found, torch.tensor([[[first], [second]]]), rtol=0, atol=1e-12)


def test_before_training_the_numbers_are_those_of_the_code_of_the_paper() -> None:
    part = bias(2000)
    factors, rates = part.log_factors.detach().exp(), part.log_rates.detach().exp()
    assert 0 < factors.min() < 0.1
    assert 1.9 < factors.max() < 2
    assert 0 < rates.min() < 0.1
    assert 0.9 < rates.max() < 1
    assert abs(factors.mean() - 1) < 0.1
    assert abs(rates.mean() - 0.5) < 0.05


def test_every_layer_of_a_transformer_has_its_own() -> None:
    model = model_of("model=transformer", "position=kerple")
    parts = [layer.attention.relative for layer in model.encoder.layers]
    parts += [layer.self_attention.relative for layer in model.decoder.layers]
    assert {type(part) for part in parts} == {LogarithmicBias}
    assert len({id(part.log_rates) for part in parts}) == len(parts)
    assert {layer.cross_attention.relative for layer in model.decoder.layers} == {None}
