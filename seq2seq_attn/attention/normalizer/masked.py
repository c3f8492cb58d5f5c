"""Sparse mappings, such as those of the entmax package, told what is hidden."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.tensors.precision import at_least_float32

# Finite, since a row of -inf is NaN in these mappings; its square is finite too in float32, which entmax15 sums.
HIDDEN_SCORE = -1e15


def masked(
    mapping: Callable[[Tensor, int], Tensor],
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
) -> Float[Tensor, "*rows keys"]:
    """Weights of the last dimension, in the dtype of `scores`; half precision goes through float32.

    Hidden keys weigh exactly 0, a row that sees nothing is all 0. The fill is a constant, so no gradient flows by it.
    """
    wide = at_least_float32(scores)
    if allowed is None:
        return mapping(wide, -1).to(scores.dtype)
    hidden = ~allowed
    return mapping(wide.masked_fill(hidden, HIDDEN_SCORE), -1).masked_fill(hidden, 0.0).to(scores.dtype)
