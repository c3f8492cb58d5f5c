"""The formulas of ConvS2S as in its paper: position by position, with explicit weight normalisation."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Factor(nn.Module):
    """A deterministic replacement for dropout that changes every number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def randomise(module: M) -> M:
    """Change all parameters, so that no bias is 0 and no g is |v|, and replace dropout."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    for number, child in enumerate(module.modules()):
        if isinstance(getattr(child, "dropout", None), nn.Dropout):
            child.dropout = Factor(0.7 + 0.1 * (number % 5))
    return module.eval()


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """Return W x + b with rows w = g v / |v|."""
    size, direction = module.parametrizations.weight.original0, module.parametrizations.weight.original1
    rows = [g * v / (v @ v).sqrt() for g, v in zip(size, direction, strict=True)]
    return torch.stack([w @ x for w in rows]) + module.bias


def gated(convolution: nn.Module, window: list[Tensor]) -> Tensor:
    """Return A * sigmoid(B) for one position."""
    both = linear(convolution.linear, torch.cat([convolution.dropout(x) for x in window]))
    half = len(both) // 2
    return both[:half] / (1 + torch.exp(-both[half:]))


def gradients(loss: Tensor, of: list[Tensor]) -> list[Tensor]:
    """Return the gradients, with zeros in place of None."""
    found = torch.autograd.grad(loss, of, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, of, strict=True)]
