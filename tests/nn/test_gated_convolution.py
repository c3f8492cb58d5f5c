"""The gated convolution and its weight normalisation: worked numbers, the formula of the paper and its variances."""

from __future__ import annotations

import math

import pytest
import torch
from nn.conv_formulas import gated, gradients, randomise
from torch.nn import functional as F

from seq2seq_attn.nn.gated_convolution import GatedConvolution, normed_linear

pytestmark = pytest.mark.usefixtures("double")


def test_a_worked_window() -> None:
    convolution = GatedConvolution(dim=1, kernel_size=2, dropout=0.0)
    weight = convolution.linear.parametrizations.weight
    weight.original0.data = torch.tensor([[10.0], [2.0]])
    weight.original1.data = torch.tensor([[3.0, 4.0], [5.0, 0.0]])  # w: (6, 8) and (2, 0)
    convolution.linear.bias.data = torch.tensor([-4.0, 1.0])
    found = convolution(torch.tensor([[[1.0], [2.0], [-1.0]]]))
    expected = [18 / (1 + math.exp(-3)), 0 / (1 + math.exp(-5))]
    torch.testing.assert_close(found, torch.tensor(expected).view(1, 2, 1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel_size", [1, 2, 5])
def test_each_position_is_the_formula_of_its_window_values_and_gradients(kernel_size: int) -> None:
    convolution = randomise(GatedConvolution(dim=3, kernel_size=kernel_size, dropout=0.2))
    x = torch.randn(2, 7, 3, requires_grad=True)
    found = convolution(x)
    assert found.shape == (2, 8 - kernel_size, 3)
    expected = torch.stack(
        [torch.stack([gated(convolution, list(row[t : t + kernel_size])) for t in range(8 - kernel_size)]) for row in x]
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream, of = torch.randn_like(found), [x, *convolution.parameters()]
    for ours, theirs in zip(
        gradients((found * upstream).sum(), of), gradients((expected * upstream).sum(), of), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_it_equals_torchs_convolution_with_the_kernel_in_its_order() -> None:
    convolution = randomise(GatedConvolution(dim=3, kernel_size=5, dropout=0.0)).eval()
    x = torch.randn(2, 7, 3)
    kernel = convolution.linear.weight.unflatten(1, (5, 3)).mT  # (output, input, position)
    both = F.conv1d(convolution.dropout(x).mT, kernel, convolution.linear.bias)
    torch.testing.assert_close(convolution(x), F.glu(both, 1).mT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_what_enters_the_gates_has_four_times_the_variance_of_the_input_whatever_the_dropout(dropout: float) -> None:
    convolution = GatedConvolution(dim=61, kernel_size=3, dropout=dropout)
    windows = convolution.dropout(torch.randn(2000, 3 * 61))
    variance = convolution.linear(windows).var()
    torch.testing.assert_close(variance, torch.tensor(4.0), rtol=0.05, atol=0)


def test_a_new_layer_has_rows_of_the_papers_deviation_and_no_bias() -> None:
    linear = normed_linear(401, 199, variance=0.9)
    weight = linear.parametrizations.weight
    torch.testing.assert_close(weight.original0, weight.original1.norm(dim=1, keepdim=True))
    torch.testing.assert_close(linear.weight.std(), torch.tensor((0.9 / 401) ** 0.5), rtol=0.02, atol=0)
    assert (linear.bias == 0).all()
