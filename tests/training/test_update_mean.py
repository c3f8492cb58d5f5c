"""What is divided by what in an update, by hand; that processes agree stands in test_many_devices.py."""

from __future__ import annotations

import torch
from torch import nn

from seq2seq_attn.training.update_mean import UpdateMean


def test_batches_of_an_update_weigh_as_their_tokens() -> None:
    weight, mean = nn.Parameter(torch.tensor(2.0)), UpdateMean()
    for number, (slope, tokens) in enumerate([(6.0, 3), (1.0, 1), (2.0, 7)]):
        loss = slope * weight
        mean.add(loss, tokens, [weight], begin=number == 0)
        (loss / mean.divisor(3) / 3).backward()  # Lightning divides by the batches of an update
    assert mean.tokens == 11
    torch.testing.assert_close(mean.mean(), torch.tensor(2 * 9 / 11))
    torch.testing.assert_close(weight.grad, torch.tensor(9 / 11))


def test_an_update_begins_with_nothing_of_the_one_before() -> None:
    mean = UpdateMean()
    for _ in range(2):
        mean.add(torch.tensor(6.0), 3, [], begin=True)
        assert (mean.mean().item(), mean.divisor(1)) == (2.0, 3.0)


def test_a_run_that_goes_on_within_an_update_has_no_gradients_to_shrink() -> None:
    weight, mean = nn.Parameter(torch.tensor(2.0)), UpdateMean()
    mean.add(torch.tensor(6.0), 3, [weight], begin=False, alignment=torch.tensor(9.0))
    assert weight.grad is None
    assert mean.divisor(1) == 3
    assert (mean.mean(), mean.alignment_mean()) == (2, 3)


def test_a_sum_keeps_no_graph_of_the_batches_before() -> None:
    weight, mean = nn.Parameter(torch.tensor(2.0)), UpdateMean()
    for begin in (True, False):
        mean.add(3 * weight, 3, [weight], begin=begin, alignment=5 * weight)
        assert not mean.mean().requires_grad
        assert not mean.alignment_mean().requires_grad


def test_the_loss_of_links_is_a_mean_over_all_tokens_of_an_update() -> None:
    mean = UpdateMean()
    for number, (alignment, tokens) in enumerate([(9.0, 3), (2.0, 1), (0.0, 7)]):
        mean.add(torch.tensor(1.0), tokens, [], begin=number == 0, alignment=torch.tensor(alignment))
    assert mean.alignment_mean() == 1
    mean.add(torch.tensor(1.0), 2, [], begin=True, alignment=torch.tensor(4.0))
    assert mean.alignment_mean() == 2
