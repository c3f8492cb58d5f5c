"""Stick-breaking: shares by hand, what a row does not see, and what is special about its order."""

from __future__ import annotations

import math

import pytest
import torch
from configs import attention_of

from seq2seq_attn.attention.normalizer.stick_breaking import StickBreakingNormalizer

LN3 = math.log(3)  # the score whose share is 3/4


def weights(scores: torch.Tensor, allowed: torch.Tensor | None = None) -> torch.Tensor:
    return StickBreakingNormalizer()(scores, allowed).weights


def test_each_key_takes_its_share_of_what_later_keys_left() -> None:
    found = weights(torch.tensor([[0.0, LN3, -LN3, 0.0]]))
    # from the end: 1/2; 1/4 of 1/2; 3/4 of 3/8; 1/2 of 3/32
    torch.testing.assert_close(found, torch.tensor([[3 / 64, 9 / 32, 1 / 8, 1 / 2]]))


def test_a_key_that_is_hidden_takes_nothing_whatever_its_score() -> None:
    scores = torch.tensor([0.0, 50.0, LN3, 90.0]).expand(3, -1)
    allowed = torch.tensor([[True, False, True, False], [True, False, False, False], [False] * 4])
    expected = torch.tensor([[1 / 8, 0, 3 / 4, 0], [1 / 2, 0, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(weights(scores, allowed), expected)


@pytest.mark.usefixtures("double")
def test_what_is_left_is_the_product_of_all_that_was_not_taken() -> None:
    scores = torch.randn(3, 41)
    torch.testing.assert_close(1 - weights(scores).sum(-1), (1 - scores.sigmoid()).prod(-1), rtol=0, atol=1e-14)


def test_large_scores_and_long_rows_stay_exact_in_float32() -> None:
    scores = torch.full((1, 4096), -8.0)
    scores[0, 7], scores[0, 5] = 1e4, 1e4  # all that is left, and then nothing is
    found, exact = weights(scores), weights(scores.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=0)
    assert not found[0, :7].any()
    assert found[0, 7].item() == pytest.approx(1 - found[0, 8:].sum().item(), abs=1e-5)


def test_gradients_of_extreme_scores_are_finite() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0, 1e4, -1e4]], requires_grad=True)
    (weights(scores) * torch.randn(1, 5)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.usefixtures("double")
def test_without_positions_the_order_of_the_tokens_still_counts() -> None:
    sizes = {"query_dim": 12, "key_dim": 12, "value_dim": 12}
    attention = attention_of("stick_breaking", "attention.num_heads=2", **sizes).eval()
    softmax = attention_of("multihead", "attention.num_heads=2", **sizes).eval()
    query, x, order = torch.randn(2, 1, 12), torch.randn(2, 9, 12), torch.randperm(9)
    one, other = (layer(query, layer.prepare(x)).context for layer in (attention, softmax))
    assert not torch.allclose(attention(query, attention.prepare(x[:, order])).context, one)
    torch.testing.assert_close(softmax(query, softmax.prepare(x[:, order])).context, other)
