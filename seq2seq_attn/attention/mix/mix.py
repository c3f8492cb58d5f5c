"""The contract of a mix: a map over the heads, of the scores before the normalizer and of the weights after it."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn


class Mix(nn.Module, ABC):
    """Three maps that see all heads at once; each does nothing by default.

    They read no position and no mask: `*batch` may be rows and columns of the blocks of a pattern, and a call may have
    some of the rows of a sentence. What was hidden before is hidden again after `before` and after `after`.

    Attributes:
        score_heads_per_head: number of score heads for each head of the values. The queries and keys of the score are
            as much narrower. Score heads are ordered by sets: the first of every head, then the second of every head.
        sums_to_one: whether weights that sum to 1 in each row still do so after `after`.
    """

    score_heads_per_head: ClassVar[int] = 1
    sums_to_one: ClassVar[bool] = True

    def before(
        self, scores: Float[Tensor, "*batch score_heads target source"]
    ) -> Float[Tensor, "*batch score_heads target source"]:
        """Return the scores that the normalizer gets."""
        return scores

    def after(
        self, weights: Float[Tensor, "*batch score_heads target source"]
    ) -> Float[Tensor, "*batch heads target source"]:
        """Return the weights of the values; they may be negative."""
        return weights

    def context(self, context: Float[Tensor, "batch heads target width"]) -> Float[Tensor, "batch heads target width"]:
        """Return the context of each head, before the heads are joined; zeros stay zeros."""
        return context
