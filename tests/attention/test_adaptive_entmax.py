"""Adaptive entmax: its ends, which are softmax and sparsemax, and its gradients by scores and alphas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.test_normalizers import mask_with_a_blind_row, normalizer_of
from configs import attention_of
from torch import Tensor, nn

from seq2seq_attn.attention.normalizer.adaptive_entmax import AdaptiveEntmaxNormalizer, masked_alpha_entmax

pytestmark = pytest.mark.usefixtures("double")

HEADS, ROWS, KEYS = 3, 5, 7


def adaptive(logit: float) -> AdaptiveEntmaxNormalizer:
    normalizer = AdaptiveEntmaxNormalizer(num_heads=HEADS)
    nn.init.constant_(normalizer.logits, logit)
    return normalizer


@pytest.mark.parametrize(("logit", "option"), [(0.0, "entmax15"), (50.0, "sparsemax")])
@pytest.mark.parametrize("masked", [False, True])
def test_it_starts_as_entmax15_and_may_become_sparsemax(logit: float, option: str, masked: bool) -> None:
    scores, upstream = (2 * torch.randn(2, HEADS, ROWS, KEYS)).requires_grad_(), torch.randn(2, HEADS, ROWS, KEYS)
    allowed = mask_with_a_blind_row(2, 1, ROWS, KEYS) if masked else None
    found, expected = (n(scores, allowed).weights for n in (adaptive(logit), normalizer_of(option)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad((w * upstream).sum(), scores)[0] for w in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_its_layers_start_as_those_of_entmax15() -> None:
    sizes = {"query_dim": 12, "key_dim": 12, "value_dim": 12}
    ours = attention_of("adaptive_entmax", f"attention.num_heads={HEADS}", **sizes)
    theirs = attention_of("multihead", f"attention.num_heads={HEADS}", "attention/normalizer=entmax15", **sizes)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    x = torch.randn(2, 9, 12)
    found, expected = (attention.attend_self(x, causal=True).context for attention in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_low_alpha_is_near_softmax_and_is_never_below_1_01() -> None:
    scores = torch.randn(HEADS, ROWS, KEYS)
    found = adaptive(-50.0)(scores, None).weights
    assert (found - scores.softmax(-1)).abs().max() < 0.02
    assert adaptive(-50.0).excess.tolist() == [0.01] * HEADS
    assert (found > 0).all()


def test_an_alpha_below_1_01_still_learns() -> None:
    normalizer, scores = adaptive(-6.0), torch.randn(HEADS, ROWS, KEYS)
    (gradient,) = torch.autograd.grad(normalizer(scores, None).weights.square().sum(), normalizer.logits)
    assert (gradient.abs() > 1e-6).all()


def test_heads_have_an_alpha_each() -> None:
    normalizer, scores = adaptive(0.0), 2 * torch.randn(1, 101, 31).expand(HEADS, -1, -1)
    normalizer.logits.data = torch.tensor([-3.0, 0.0, 3.0])
    weights = normalizer(scores, None).weights
    counts = (weights > 0).sum((1, 2)).tolist()
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == HEADS
    for head, logit in enumerate(normalizer.logits.tolist()):
        torch.testing.assert_close(weights[head], adaptive(logit)(scores, None).weights[head], rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("excess", [0.2, 0.5, 0.9])
def test_first_and_second_derivatives_are_those_of_finite_differences(excess: float, masked: bool) -> None:
    scores = torch.randn(2, ROWS).requires_grad_()
    allowed = mask_with_a_blind_row(2, ROWS) if masked else None
    of = (scores, torch.tensor([[excess], [excess / 2]], requires_grad=True))

    def weights(scores: Tensor, excess: Tensor) -> Tensor:
        return masked_alpha_entmax(scores, allowed, excess)

    assert torch.autograd.gradcheck(weights, of)
    assert torch.autograd.gradgradcheck(weights, of)


def test_the_gradient_of_a_weight_by_alpha_is_that_of_proposition_1() -> None:
    scores, alpha = torch.tensor([0.3, -0.2, 1.1, -4.0]), 1.4
    excess = torch.tensor([[alpha - 1]], requires_grad=True)
    weights = masked_alpha_entmax(scores[None], None, excess)[0]
    assert weights[3] == 0
    p = weights.detach()[:3]
    slope = p ** (2 - alpha) / (p ** (2 - alpha)).sum()
    h = -p * p.log()
    expected = (p - slope) / (alpha - 1) ** 2 + (h - slope * h.sum()) / (alpha - 1)
    for i in range(3):
        (found,) = torch.autograd.grad(weights[i], excess, retain_graph=True)
        torch.testing.assert_close(found[0, 0], expected[i], rtol=0, atol=1e-12)


def test_alignment_teaches_alpha_too() -> None:
    normalizer, scores = adaptive(0.3), torch.randn(ROWS, KEYS)
    target, step = torch.rand(ROWS, KEYS).softmax(-1), 1e-5

    def loss(logit: float) -> Tensor:
        return total(adaptive(logit))

    def total(normalizer: Any) -> Tensor:
        weights = normalizer(scores.expand(HEADS, -1, -1), None).weights[1]
        return normalizer.alignment_loss(scores, weights, None, target, 1).sum()

    (found,) = torch.autograd.grad(total(normalizer), normalizer.logits)
    expected = (loss(0.3 + step) - loss(0.3 - step)) / (2 * step)
    torch.testing.assert_close(found[1], expected.detach(), rtol=0, atol=1e-8)
    assert found[[0, 2]].tolist() == [0.0, 0.0]


def test_alpha_is_learned() -> None:
    """A target of equal weights asks for a low alpha, and a target of one key for a high one."""
    scores = torch.tensor([[[1.0, 0.0, -1.0]]]).expand(2, -1, -1)
    target = torch.tensor([[[1 / 3, 1 / 3, 1 / 3]], [[1.0, 0.0, 0.0]]])
    normalizer = AdaptiveEntmaxNormalizer(num_heads=2)
    optimizer = torch.optim.SGD(normalizer.parameters(), lr=1.0)
    for _ in range(20):
        optimizer.zero_grad()
        (normalizer(scores, None).weights - target).square().sum().backward()
        optimizer.step()
    low, high = (1 + normalizer.excess).tolist()
    assert low < 1.5 < high
