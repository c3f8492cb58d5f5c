"""Both ways to join positions to embeddings, compared with loops."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.join import Join

pytestmark = pytest.mark.usefixtures("double")
B, T, D = 2, 5, 3


def test_adding_has_no_weight() -> None:
    join, embedded, positions = Join(dim=D, join="add"), torch.randn(B, T, D), torch.randn(T, D)
    assert not list(join.parameters())
    assert torch.equal(join(embedded, positions), embedded + positions)


def test_concatenating_is_one_projection_of_the_joined_pair_values_and_gradients() -> None:
    join = Join(dim=D, join="concat")
    assert join.project.weight.shape == (D, 2 * D)
    embedded, positions = torch.randn(B, T, D, requires_grad=True), torch.randn(T, D, requires_grad=True)
    pairs = [torch.cat([embedded[b, t], positions[t]]) for b in range(B) for t in range(T)]
    expected = torch.stack([join.project.weight @ pair for pair in pairs]).view(B, T, D)
    found, upstream = join(embedded, positions), torch.randn(B, T, D)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    of = [embedded, positions, join.project.weight]
    for ours, theirs in zip(
        torch.autograd.grad((found * upstream).sum(), of),
        torch.autograd.grad((expected * upstream).sum(), of),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_concatenating_by_hand() -> None:
    join = Join(dim=1, join="concat")
    join.project.weight.data = torch.tensor([[2.0, 10.0]])
    assert join(torch.tensor([[[3.0], [4.0]]]), torch.tensor([[1.0], [5.0]])).tolist() == [[[16.0], [58.0]]]


def test_another_way_to_join_is_refused() -> None:
    sentence = r"^position\.join=sum is unknown; use position\.join=add or position\.join=concat$"
    with pytest.raises(UserError, match=sentence):
        Join(dim=D, join="sum")
