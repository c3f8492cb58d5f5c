"""Luong's predicted window: its Gaussian by hand, in causal order, in half precision."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import attention_of

from seq2seq_attn.attention.pattern.local_p import LocalPPattern

pytestmark = pytest.mark.usefixtures("double")


def predicting(**sizes: int) -> Any:
    """Uniform scores under a Gaussian around a quarter of the sentence: sigmoid(-log 3) = 1/4."""
    attention = attention_of("none", "attention/pattern=local_p", "attention.pattern.k=2", **sizes)
    attention.pattern.project_query.weight.data = torch.tensor([[2.0]])
    attention.pattern.vector.data = torch.tensor([[-math.log(3) / math.tanh(2)]])
    return attention


def test_the_gaussian_of_luong_by_hand() -> None:
    # S = 8, so p = 2; D = 2, so positions 0 to 4 share the softmax and sigma = 1.
    attention = predicting(query_dim=1, key_dim=1, value_dim=1)
    memory = attention.prepare(torch.randn(1, 11, 1), mask=torch.arange(11)[None] < 8)
    weights = attention(torch.ones(1, 1, 1), memory, need_weights=True).weights
    shares = [math.exp(-2), math.exp(-0.5), 1, math.exp(-0.5), math.exp(-2)]
    expected = torch.tensor([share / 5 for share in shares] + [0.0] * 6)
    torch.testing.assert_close(weights[0, 0, 0], expected)


def test_a_causal_prediction_is_a_part_of_what_was_seen() -> None:
    pattern = predicting(query_dim=1, key_dim=1, value_dim=1).pattern
    positions = torch.arange(8)
    centre = pattern.centre(torch.ones(1, 8, 1), positions, (positions + 1)[None])
    torch.testing.assert_close(centre, (positions + 1)[None] / 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_predicted_position_of_half_precision_is_not_rounded(dtype: torch.dtype) -> None:
    pattern = LocalPPattern(query_dim=3, k=2).to(dtype)
    query, length = torch.zeros(1, 1, 3, dtype=dtype), 4097
    centre = pattern.centre(query, torch.tensor([0]), torch.tensor([[length]]))
    assert centre.tolist() == [[2048.5]]
    assert pattern.reweigh(torch.ones(1, 1, 1, 5, dtype=dtype), centre, torch.arange(5)).dtype == dtype
