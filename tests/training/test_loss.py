"""The loss against its definition."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.training.loss import label_smoothed_cross_entropy


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_cross_entropy_against_the_smoothed_reference(smoothing: float) -> None:
    logits, target = torch.randn(5, 7, requires_grad=True), torch.tensor([0, 3, 6, 6, 1])
    loss = label_smoothed_cross_entropy(logits, target, smoothing)
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    wanted = torch.full((5, 7), smoothing / 7)
    wanted[torch.arange(5), target] += 1 - smoothing
    expected = -(wanted * probabilities.log()).sum()
    torch.testing.assert_close(loss.smoothed, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        loss.nll, -probabilities[torch.arange(5), target].log().sum(), rtol=0, atol=1e-12
    )
    ours, theirs = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss.smoothed, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert loss.tokens == 5
