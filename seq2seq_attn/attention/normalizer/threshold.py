"""The threshold of entmax by Newton's method: the tau at which the weights of a row sum to 1.

The weights are u^p, with u = max(0, (alpha - 1) score - tau) and p = 1 / (alpha - 1), so that tau solves ||u||_p = 1.
The norm is convex in tau, falls with it and is linear where all u are equal: from below, a step of Newton's method
never goes too far, and few are needed for any alpha. For alpha = 2 this is the algorithm of Michelot 1986.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.nn.transforms import inside_transform

STEPS = 16  # most often six are enough

# From the u of all rows to how far the tau of each has to rise: (||u||_p - 1) / -(d||u||_p / dtau).
Step = Callable[[Float[Tensor, "*rows keys"]], Float[Tensor, "*rows 1"]]


def newton_threshold(scaled: Float[Tensor, "*rows keys"], step: Step) -> Float[Tensor, "*rows 1"] | None:
    """Return tau; None: not found in so many steps, or not tried on a GPU, which would wait for the end of each.

    Args:
        scaled: the scores, multiplied by alpha - 1, the best of a row being 0. tau is at least -1 then.
    """
    if not scaled.is_cpu or inside_transform() or torch.compiler.is_compiling():
        return None
    threshold, last = -torch.ones_like(scaled[..., :1]), torch.finfo(scaled.dtype).eps
    for _ in range(STEPS):
        rise = step((scaled - threshold).clamp_(min=0))
        threshold = threshold + rise
        if bool((rise <= last).all()):
            return threshold
    return None


def sparsemax_step(above: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows 1"]:
    return (above.sum(-1, keepdim=True) - 1) / above.sign().sum(-1, keepdim=True)


def entmax15_step(above: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows 1"]:
    norm = torch.linalg.vector_norm(above, dim=-1, keepdim=True)
    return norm * (norm - 1) / above.sum(-1, keepdim=True)


def entmax_step(above: Float[Tensor, "*rows keys"], excess: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows 1"]:
    """Return the step for any alpha; `excess` is alpha - 1 of each row."""
    slope = (above ** (1 / excess - 1)).masked_fill(above == 0, 0.0)  # at alpha = 2, 0 ** 0 is 1
    total = (slope * above).sum(-1, keepdim=True)
    return (total - total ** (1 - excess)) / slope.sum(-1, keepdim=True)
