"""Monotonic normalizer: attention that moves forward only. Raffel et al. 2017, eq. 11-14, arXiv:1704.00784."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.history import ReadsHistory
from seq2seq_attn.attention.normalizer.masked import cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.precision import at_least_float32

LEAST = 1e-20  # weight whose logarithm is taken; its inverse, the largest gradient, is finite in float32


@final
class MonotonicNormalizer(ReadsHistory, Normalizer):
    """The weights of a walk over the keys: it starts where the last step stopped, and stops at key j with p_j.

        p_j = sigmoid(score_j + r),  q_j = (1 - p_(j-1)) q_(j-1) + a_(t-1, j),  a_(t, j) = p_j q_j

    Where a target is given, in training, validation and scoring, these are the probabilities of the stops. In a search
    p_j is rounded to 0 or 1, so that the same formula walks to one key, the first with p_j > 0.5 (section 2.2). A
    walk that passes the last key stops nowhere: the weights sum to less than 1, and to 0 in a search, from then on.

    The score is used as it is, without the g / |v| of section 2.4, which the length of v replaces.

    Args:
        offset: the first value of r, which is learned. The lower it is, the longer are the first walks.
        noise: standard deviation of what is added to the scores in training, so that p_j becomes 0 or 1 (section 2.5).

    Raises:
        UserError: for a negative `noise`.
    """

    sums_to_one: ClassVar[bool] = False

    def __init__(self, *, offset: Annotated[float, "[-100, 100]"], noise: Annotated[float, "[0, inf)"]) -> None:
        super().__init__()
        if noise < 0:
            raise UserError(f"attention.normalizer.noise={noise} is a standard deviation; take 0 or more")
        self.offset, self.noise = nn.Parameter(torch.tensor(float(offset))), noise

    def first_history(self, zeros: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
        """Return a walk that stopped at the first key."""
        return (torch.arange(zeros.shape[-1], device=zeros.device) == 0).to(zeros.dtype).expand_as(zeros)

    def forward(
        self,
        scores: Float[Tensor, "*rows keys"],
        allowed: Bool[Tensor, "*#rows keys"] | None,
        history: Float[Tensor, "*rows keys"] | None = None,
        in_search: bool = False,
    ) -> Normalized:
        if scores.shape[-1] == 0:  # nothing to shift
            return Normalized(scores)
        wide = at_least_float32(scores) + self.offset
        if self.training and self.noise > 0:
            wide = wide + self.noise * torch.randn_like(wide)
        stop = (wide > 0).to(wide.dtype) if in_search else wide.sigmoid()
        move = 1 - stop if in_search else (-wide).sigmoid()  # exact where `stop` is nearly 1
        if allowed is not None:
            stop, move = stop.masked_fill(~allowed, 0.0), move.masked_fill(~allowed, 1.0)
        before = self.first_history(torch.zeros_like(stop)) if history is None else history.to(stop.dtype)
        reached = linear_recurrence(F.pad(move, (1, -1)), before)
        return Normalized((stop * reached).to(scores.dtype))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the weights, the probabilities of the stops."""
        return cross_entropy(weights.clamp(min=LEAST).log(), target)


def linear_recurrence(
    factors: Float[Tensor, "*rows keys"], terms: Float[Tensor, "*rows keys"]
) -> Float[Tensor, "*rows keys"]:
    """Return x with x_j = factors_j x_(j-1) + terms_j and x_(-1) = 0, by log2(keys) steps over all keys.

    It neither divides nor takes logarithms, so factors of 0 and 1 are exact. Hillis and Steele 1986, "Data parallel
    algorithms".
    """
    shift = 1
    while shift < terms.shape[-1]:
        terms = terms + factors * F.pad(terms, (shift, -shift))
        factors = factors * F.pad(factors, (shift, -shift))
        shift *= 2
    return terms
