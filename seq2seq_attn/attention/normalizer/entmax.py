"""Entmax: the sparse mappings to the simplex between softmax and sparsemax. Peters et al. 2019, arXiv:1905.05702."""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.threshold import entmax15_step, newton_threshold, sparsemax_step

NEWTON_FROM = 2**12  # scores, from which Newton's method is faster than sorting them: measured on one CPU core


@final
class Entmax(torch.autograd.Function):
    """max(0, (alpha - 1) score - tau)^(1 / (alpha - 1)), with the tau that makes a row sum to 1, for alpha 2 and 1.5.

    The row's Jacobian is diag(s) - s s^T / sum(s), s = weight^(2 - alpha) where the weight is above 0 (Proposition 2).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Float[Tensor, "*rows keys"], alpha: float) -> Float[Tensor, "*rows keys"]:
        scores = scores - scores.amax(-1, keepdim=True)
        if alpha == 2:
            return (scores - sparsemax_threshold(scores)).clamp(min=0)
        halves = scores / 2
        return (halves - entmax15_threshold(halves)).clamp(min=0) ** 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        if ctx.alpha == 2:
            slope = (weights > 0).to(weights.dtype)
        elif torch.is_grad_enabled():  # the derivative of a root is infinite at 0
            none = weights == 0
            slope = weights.masked_fill(none, 1.0).sqrt().masked_fill(none, 0.0)
        else:
            slope = weights.sqrt()
        shares = upstream * slope
        return shares - shares.sum(-1, keepdim=True) / slope.sum(-1, keepdim=True) * slope, None


def sparsemax_threshold(scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows 1"]:
    """Return tau by Newton's method or, where it does not serve, from the largest k whose k best scores are above it.

    The latter is algorithm 1 of Martins and Astudillo 2016.
    """
    found = newton_threshold(scores, sparsemax_step) if scores.numel() >= NEWTON_FROM else None
    if found is not None:
        return found
    best = scores.sort(-1, descending=True).values
    number = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
    excess = best.cumsum(-1) - 1
    k = (number * best > excess).sum(-1, keepdim=True).clamp(min=1)  # 0 of scores that are not finite
    return excess.gather(-1, k - 1) / k.to(scores.dtype)


def entmax15_threshold(halves: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows 1"]:
    """Return tau by Newton's method or, where it does not serve, from mean and spread of the k best halves of scores.

    The latter is algorithm 2 of Peters et al. 2019.
    """
    found = newton_threshold(halves, entmax15_step) if halves.numel() >= NEWTON_FROM else None
    if found is not None:
        return found
    best = halves.sort(-1, descending=True).values
    number = torch.arange(1, halves.shape[-1] + 1, dtype=halves.dtype, device=halves.device)
    mean, mean_square = best.cumsum(-1) / number, (best**2).cumsum(-1) / number
    spread = number * (mean_square - mean**2)
    threshold = mean - ((1 - spread) / number).clamp(min=0).sqrt()
    k = (threshold <= best).sum(-1, keepdim=True).clamp(min=1)
    return threshold.gather(-1, k - 1)
