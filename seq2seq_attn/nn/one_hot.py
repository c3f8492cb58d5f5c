"""One position out of each row: the best by its scores or, if they are given noise, one drawn by them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def best_position(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*rows keys"]:
    """1 at the largest score that may be seen, the first of equals; all 0 in a row that sees nothing.

    These are constants: no gradient reaches the scores.
    """
    visible = scores.detach()
    if visible.shape[-1] == 0:  # there is no best one
        return visible
    if allowed is not None:
        visible = visible.masked_fill(~allowed, -torch.inf)
    chosen = torch.zeros_like(visible).scatter_(-1, visible.argmax(-1, keepdim=True), 1.0)
    return chosen if allowed is None else chosen.masked_fill(~allowed, 0.0)


def gumbel_noise(scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows keys"]:
    """Added to the scores, it makes their arg max a draw from their softmax.

    The same as a call of `torch.multinomial`, which makes a GPU wait. Maddison et al. 2014, section 2,
    arXiv:1411.0030.
    """
    return -torch.empty_like(scores).exponential_().log()
