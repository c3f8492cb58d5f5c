"""Softmax and mean over allowed positions: others get exactly 0, and a row without any is all 0."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.nn.precision import at_least_float32


def masked_softmax(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*rows keys"]:
    """Return the softmax over the last dimension, in the dtype of `scores`; half precision is computed in float32.

    The fill value is the minimum of the dtype, since the softmax of a row of -inf is NaN, and so is its gradient.
    """
    wide = at_least_float32(scores)
    if allowed is None:
        return wide.softmax(-1).to(scores.dtype)
    hidden = ~allowed
    wide = wide.masked_fill(hidden, torch.finfo(wide.dtype).min)
    return wide.softmax(-1).masked_fill(hidden, 0.0).to(scores.dtype)


def masked_mean(x: Float[Tensor, "batch length dim"], mask: Bool[Tensor, "batch length"]) -> Float[Tensor, "batch dim"]:
    """Return the mean over the positions where `mask` is True; zeros for a sentence without any."""
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def intersect_masks(left: Bool[Tensor, "..."] | None, right: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """Return the positions that both masks allow; None allows all."""
    if left is None:
        return right
    return left if right is None else left & right
