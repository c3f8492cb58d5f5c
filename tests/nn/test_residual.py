"""The place of the norm in a residual connection, and the term to which dropout applies."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.residual import Residual, closing_norm

EPSILON = 1e-5  # of LayerNorm, added to the variance


def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.usefixtures("double")
def test_pre_norm_adds_a_function_of_the_normalised_input() -> None:
    residual, x = Residual(dim=2, norm="pre", dropout=0.0), torch.tensor([[[3.0, 5.0]]])
    # The mean is 4 and the variance 1, so the normalised values are [-1, 1] up to epsilon.
    expected = x + 2 * torch.tensor([[[-1.0, 1.0]]]) / (1 + EPSILON) ** 0.5
    torch.testing.assert_close(residual(x, twice(residual.before(x))), expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_post_norm_normalises_the_sum() -> None:
    residual, x = Residual(dim=2, norm="post", dropout=0.0), torch.tensor([[[3.0, 5.0]]])
    # The sum is [9, 15]: mean 12, variance 9.
    expected = torch.tensor([[[-3.0, 3.0]]]) / (9 + EPSILON) ** 0.5
    torch.testing.assert_close(residual(x, twice(residual.before(x))), expected, rtol=0, atol=1e-12)


def test_dropout_applies_to_the_added_term_only() -> None:
    residual = Residual(dim=97, norm="pre", dropout=0.75)
    added = residual(torch.full((2, 31, 97), 3.0), torch.ones(2, 31, 97)) - 3
    assert set(added.unique().tolist()) == {0.0, 4.0}
    assert 0.2 < (added > 0).float().mean() < 0.3


@pytest.mark.parametrize(("norm", "closing"), [("pre", nn.LayerNorm), ("post", nn.Identity)])
def test_a_stack_of_pre_norm_closes_with_a_norm_and_one_of_post_norm_with_none(
    norm: str, closing: type[nn.Module]
) -> None:
    assert type(closing_norm(norm, 5)) is closing
    residual = Residual(dim=5, norm=norm, dropout=0.0)
    assert sum(isinstance(module, nn.LayerNorm) for module in residual.modules()) == 1


def test_an_unknown_norm_is_refused() -> None:
    unchecked = inspect.unwrap(Residual.__init__)  # in tests the annotation would refuse it first
    with pytest.raises(UserError, match=r"norm=none is unknown; choose from: pre, post"):
        unchecked(Residual.__new__(Residual), dim=5, norm="none", dropout=0.0)
