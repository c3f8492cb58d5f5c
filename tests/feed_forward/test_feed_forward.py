"""The feed-forward parts against their formulas, and how many weights they hold."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from configs import CONF, built, options
from omegaconf import OmegaConf
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.feed_forward.feed_forward import FeedForward

OPTIONS = options("feed_forward")
ACTIVATIONS = {
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "swiglu": lambda z: z / (1 + math.exp(-z)),
}


def part(option: str, **sizes: int) -> Any:
    return built(OmegaConf.load(CONF / f"feed_forward/{option}.yaml"))(**sizes)


def activated(option: str, z: Tensor) -> Tensor:
    return torch.tensor([ACTIVATIONS[option](number) for number in z.tolist()])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", OPTIONS)
def test_each_position_equals_the_formula(option: str) -> None:
    feed_forward, x = part(option, dim=5, ff_dim=7), torch.randn(2, 3, 5)
    for parameter in feed_forward.parameters():
        parameter.data = torch.randn_like(parameter)
    expand, reduce = feed_forward.expand.weight, feed_forward.reduce.weight
    found = feed_forward(x)
    for row in range(2):
        for position in range(3):
            one = x[row, position]
            if option == "swiglu":
                expected = reduce @ (activated(option, expand[:7] @ one) * (expand[7:] @ one))
            else:
                inner = activated(option, expand @ one + feed_forward.expand.bias)
                expected = reduce @ inner + feed_forward.reduce.bias
            torch.testing.assert_close(found[row, position], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_parameter_and_the_input_get_a_gradient(option: str) -> None:
    feed_forward, x = part(option, dim=5, ff_dim=7), torch.randn(2, 3, 5, requires_grad=True)
    feed_forward(x).square().sum().backward()
    assert all((tensor.grad != 0).any() for tensor in (x, *feed_forward.parameters()))


def test_the_part_without_a_gate_is_four_times_as_wide_inside() -> None:
    feed_forward = part("relu", dim=7)
    assert feed_forward.expand.weight.shape == (28, 7)
    assert sum(p.numel() for p in feed_forward.parameters()) == 8 * 7**2 + 28 + 7


@pytest.mark.parametrize(("dim", "ff_dim"), [(3, 8), (7, 24), (256, 688), (384, 1024), (512, 1368)])
def test_the_gated_part_is_8_thirds_as_wide_inside_up_to_a_multiple_of_8(dim: int, ff_dim: int) -> None:
    feed_forward = part("swiglu", dim=dim)
    assert feed_forward.reduce.weight.shape == (dim, ff_dim)
    assert 0 <= ff_dim - 8 * dim / 3 < 8
    assert sum(p.numel() for p in feed_forward.parameters()) == 3 * dim * ff_dim


def test_with_and_without_a_gate_there_are_as_many_weights() -> None:
    gated, plain = (sum(p.numel() for p in part(option, dim=384).parameters()) for option in ("swiglu", "relu"))
    assert plain - gated == 5 * 384  # the biases


@pytest.mark.parametrize("option", OPTIONS)
def test_dropout_falls_on_the_activation(option: str) -> None:
    feed_forward = part(option, dim=1, ff_dim=1)
    feed_forward.dropout.p = 0.75
    for parameter in feed_forward.parameters():
        torch.nn.init.ones_(parameter)
    # Dropped, the output is the bias of the last layer alone; kept, the activation counts four times.
    rest = 0.0 if option == "swiglu" else 1.0
    kept = feed_forward.eval()(torch.ones(1, 1, 1)).item() - rest
    found = feed_forward.train()(torch.ones(1, 997, 1)).flatten() - rest
    torch.testing.assert_close(found.unique(), torch.tensor([0.0, 4 * kept]))
    assert 0.2 < (found > 0).float().mean() < 0.3


def test_an_unknown_activation_is_refused() -> None:
    unchecked = inspect.unwrap(FeedForward.__init__)  # in tests the annotation would refuse it first
    sentence = "feed_forward.activation=tanh is unknown; choose from: relu, gelu, or use feed_forward=swiglu"
    with pytest.raises(UserError, match=sentence):
        unchecked(FeedForward.__new__(FeedForward), dim=5, ff_dim=7, activation="tanh", dropout=0.0)
