"""A linear layer whose rows are w = g v / |v|. Salimans and Kingma 2016, arXiv:1602.07868."""

from __future__ import annotations

from typing import cast

from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def normed_linear(input_dim: int, output_dim: int, *, variance: float) -> nn.Linear:
    """Rows from N(0, sqrt(variance / input_dim)), biases of 0. Gehring et al. 2017, 3.5, arXiv:1705.03122.

    Args:
        variance: p, the share of the inputs that dropout retains; 4 p where a gated linear unit follows.
    """
    linear = nn.Linear(input_dim, output_dim)
    nn.init.normal_(linear.weight, std=(variance / input_dim) ** 0.5)
    nn.init.zeros_(linear.bias)
    return cast(nn.Linear, weight_norm(linear))
