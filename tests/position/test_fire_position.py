"""FIRE's bias: pair by pair by the formula of the paper, by hand, its gradients, and what the threshold does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import model_of
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.fire import FirePosition, InterpolatedBias

H = 3


def bias(num_heads: int = H, **changed: Any) -> InterpolatedBias:
    numbers = {"hidden_dim": 5, "initial_rate": 0.1, "initial_threshold": 20.0, **changed}
    part = FirePosition(dim=11 * num_heads, **numbers).relative(num_heads=num_heads, head_dim=11)
    assert isinstance(part, InterpolatedBias)
    return part


def formula(part: InterpolatedBias, query: int, key: int) -> Tensor:
    """The bias of each head: in section 3.2 i is the query, counted from 1; here the later of the two."""
    c, threshold = 0.1 * part.log_rate.exp(), 20 * part.log_threshold.exp()
    i = torch.tensor(float(max(query, key) + 1))
    share = torch.log(1 + c * abs(query - key)) / torch.log(1 + c * torch.maximum(i, threshold))
    share = share if query >= key else -share
    hidden = torch.relu(part.expand.weight[:, 0] * share + part.expand.bias)
    return part.reduce.weight @ hidden + part.reduce.bias


@pytest.mark.usefixtures("double")
def test_it_equals_the_formula_pair_by_pair_values_and_gradients() -> None:
    part = bias()
    query_position, key_position = torch.tensor([0, 3, 1009, 40, 4]), torch.tensor([0, 1, 2, 5, 19, 50, 300])
    rows = [[formula(part, i, j) for j in key_position.tolist()] for i in query_position.tolist()]
    expected = torch.stack([torch.stack(row, -1) for row in rows], 1)[None]
    found = part.bias(None, query_position, key_position)
    assert found.shape == (1, H, 5, 7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    weights = list(part.parameters())
    ours, theirs = (torch.autograd.grad((x * upstream).sum(), weights) for x in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine != 0).any()
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_a_bias_by_hand() -> None:
    # A hidden layer of relu(x) and relu(-x), added with weights 1 and 10: earlier keys give x, later ones -10 x.
    part = bias(1, hidden_dim=2, initial_rate=1.0, initial_threshold=7.0)
    part.expand.weight.data, part.reduce.weight.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0, 10.0]])
    for linear in (part.expand, part.reduce):
        linear.bias.data.zero_()
    found = part.bias(None, torch.tensor([3, 9]), torch.tensor([0, 3, 9]))
    # positions from 1: 4 and 10; 1, 4 and 10
    near = [math.log(4) / math.log(8), 0.0, 10 * math.log(7) / math.log(11)]
    far = [math.log(10) / math.log(11), math.log(7) / math.log(11), 0.0]
    torch.testing.assert_close(found, torch.tensor([[[near, far]]]), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_below_the_threshold_the_distance_alone_counts_and_beyond_it_the_share() -> None:
    part, at = bias(initial_threshold=50.0), torch.tensor
    near = part.bias(None, at([30]), at([20]))
    torch.testing.assert_close(part.bias(None, at([49]), at([39])), near, rtol=0, atol=1e-12)
    assert not torch.allclose(part.bias(None, at([50]), at([40])), near)
    # the argument never leaves what was seen in training, so neither does the bias
    hidden = torch.relu(part.expand.weight[:, 0] * torch.linspace(-1, 1, 10_001)[:, None] + part.expand.bias)
    seen = hidden @ part.reduce.weight.T + part.reduce.bias
    far = part.bias(None, at([100_000, 3]), torch.arange(0, 100_000, 997))[0].flatten(1)
    assert (far.min(1).values >= seen.min(0).values - 1e-3).all()
    assert (far.max(1).values <= seen.max(0).values + 1e-3).all()


def test_every_layer_of_a_transformer_has_its_own() -> None:
    model = model_of("model=transformer", "position=fire")
    parts = [layer.attention.relative for layer in model.encoder.layers]
    parts += [layer.self_attention.relative for layer in model.decoder.layers]
    assert {type(part) for part in parts} == {InterpolatedBias}
    assert len({id(part.log_rate) for part in parts}) == len(parts)


@pytest.mark.parametrize("name", ["hidden_dim", "initial_rate", "initial_threshold"])
def test_numbers_that_are_not_positive_are_refused(name: str) -> None:
    numbers: dict[str, Any] = {"hidden_dim": 32, "initial_rate": 0.1, "initial_threshold": 512, name: 0}
    with pytest.raises(UserError, match=rf"^position\.{name}=0 must be above 0$"):
        FirePosition(dim=6, **numbers)
