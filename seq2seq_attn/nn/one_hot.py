"""Choice of positions in each row: the best score, a sample of one with Gumbel noise, or the k best scores."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


def best_position(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*rows keys"]:
    """Return 1 at the largest allowed score, or the first of several; 0 elsewhere and in a row without any.

    The result is constant: no gradient reaches the scores.
    """
    visible = scores.detach()
    if visible.shape[-1] == 0:  # argmax would fail
        return visible
    if allowed is not None:
        visible = visible.masked_fill(~allowed, -torch.inf)
    chosen = torch.zeros_like(visible).scatter_(-1, visible.argmax(-1, keepdim=True), 1.0)
    return chosen if allowed is None else chosen.masked_fill(~allowed, 0.0)


def best_positions(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None, k: int
) -> Bool[Tensor, "*rows keys"]:
    """Return True at the k largest allowed scores, the first of equal ones; at all allowed ones of a row with fewer."""
    visible = scores.detach()
    if allowed is not None:
        visible = visible.masked_fill(~allowed, -torch.inf)
    chosen = first_down_to(visible, visible.topk(k).values[..., -1:], k)
    return chosen if allowed is None else chosen & allowed


def list_best_positions(scores: Float[Tensor, "*rows keys"], k: int) -> Int[Tensor, "*rows k"]:
    """Return the positions that `best_positions` chooses, in ascending order, -1 for none; a key of -inf is hidden."""
    columns = scores.shape[-1]
    values, positions = scores.detach().topk(min(k + 1, columns))
    if columns > k:  # of several keys that are as good as the last one, topk takes any
        tied = (values[..., k] == values[..., k - 1]) & (values[..., k] > -torch.inf)
        values, positions = values[..., :k], positions[..., :k]
        if tied.any():
            positions[tied] = best_positions(scores[tied], None, k).nonzero()[:, 1].view(-1, k)
    positions = positions.masked_fill(values == -torch.inf, -1).sort(-1).values
    return F.pad(positions, (max(0, k - columns), 0), value=-1)


def first_down_to(
    values: Float[Tensor, "*rows keys"], least: Float[Tensor, "*rows 1"], count: Int[Tensor, "*rows 1"] | int
) -> Bool[Tensor, "*rows keys"]:
    """Return which values are the `count` greatest of each row, of which `least` is the last; ties go to the lower id.

    NaN counts as greatest, as in `topk`.
    """
    above, level = ~(values <= least), values == least
    return above | (level & (level.cumsum(-1) <= count - above.sum(-1, keepdim=True)))


def gumbel_noise(scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows keys"]:
    """Return noise that, added to the scores, makes their argmax a sample from their softmax.

    Maddison et al. 2014, section 2, arXiv:1411.0030. Unlike `torch.multinomial`, it does not make a GPU wait.
    """
    return -torch.empty_like(scores).exponential_().log()
