"""No sentence, no query, no key: every attention gives tensors of the right shape, and zeros where queries stay."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from attention.layers import HEADS, WIDTH, by_blocks, cross_layer, has_blocks, self_layer
from configs import attentions_at_once, options
from torch import Tensor

PRESETS = options("attention")
# Sentences, queries, keys.
CROSS = [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 1, 0), (0, 0, 0)]


def check(found: Any, shape: tuple[int, int, int], keys: int) -> None:
    assert found.context.shape == shape
    assert found.weights is None or found.weights.shape == (shape[0], HEADS, shape[1], keys)
    for drawn in (found.log_prob, found.entropy):
        assert drawn is None or (drawn.shape == shape[:2] and (drawn == 0).all())


def check_gradients(layer: Any, found: Any, *inputs: Tensor) -> None:
    parameters = [*inputs, *layer.parameters()]
    for gradient in torch.autograd.grad(found.context.sum(), parameters, allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


# Every preset is tried in training or in evaluation here, and in the other mode by the slow tests.
MODES = [
    pytest.param(preset, training, marks=pytest.mark.slow if (i + training) % 2 else [])
    for i, preset in enumerate(PRESETS)
    for training in (False, True)
]
AT_ONCE = attentions_at_once()
MODES_AT_ONCE = [mode for mode in MODES if mode.values[0] in AT_ONCE]


@pytest.mark.parametrize(("preset", "training"), MODES)
def test_cross_attention_of_nothing(preset: str, training: bool) -> None:
    layer = cross_layer(preset).train(training)
    for blocks, (batch, target, source) in product([False, True] if has_blocks(layer) else [False], CROSS):
        layer = by_blocks(layer) if blocks else layer
        query, keys = torch.randn(batch, target, WIDTH), torch.randn(batch, source, WIDTH, requires_grad=True)
        mask = torch.ones(batch, source, dtype=torch.bool)
        for arguments in ({}, {"mask": mask}, {"need_weights": True, "mask": mask}):
            found = layer(query, keys, **arguments)
            check(found, (batch, target, layer.context_dim), source)
            assert source > 0 or (found.context == 0).all()
        check_gradients(layer, found, keys)


@pytest.mark.parametrize(("preset", "training"), MODES_AT_ONCE)
def test_self_attention_of_nothing(preset: str, training: bool) -> None:
    layer = self_layer(preset).train(training)
    sizes = [(0, 5), (2, 0), (0, 1)]
    for blocks, (batch, length) in product([False, True] if has_blocks(layer) else [False], sizes):
        layer = by_blocks(layer) if blocks else layer
        x = torch.randn(batch, length, WIDTH, requires_grad=True)
        mask = torch.ones(batch, length, dtype=torch.bool)
        for arguments in ({}, {"mask": mask}, {"causal": True}, {"causal": True, "need_weights": True}):
            check(found := layer(x, **arguments), (batch, length, WIDTH), length)
        check_gradients(layer, found, x)


@pytest.mark.parametrize("preset", AT_ONCE)
def test_steps_go_on_from_an_empty_past_and_over_no_sentence(preset: str) -> None:
    layer, x = self_layer(preset), torch.randn(2, 3, WIDTH)
    expected = layer(x, causal=True).context
    for sentences in (2, 0):
        memory, steps = layer(x[:sentences, :0], causal=True).memory, []
        for t in range(3):
            found = layer(x[:sentences, t : t + 1], past=memory, causal=True)
            memory = found.memory
            steps.append(found.context)
        torch.testing.assert_close(torch.cat(steps, 1), expected[:sentences])


@pytest.mark.parametrize("preset", AT_ONCE)
def test_hypotheses_side_by_side_with_no_key_to_see(preset: str) -> None:
    attention = cross_layer(preset).attention
    check(attention(torch.randn(6, 1, WIDTH), attention.prepare(torch.randn(2, 0, WIDTH))), (6, 1, WIDTH), 0)
