"""Sparse mappings, told what is hidden."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.entmax import Entmax
from seq2seq_attn.nn.precision import at_least_float32

# Finite, since a row of -inf is NaN in these mappings; its square is finite too in float32, which entmax15 sums.
HIDDEN_SCORE = -1e15


def masked_entmax(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None, alpha: float
) -> Float[Tensor, "*rows keys"]:
    """Entmax weights of the last dimension, in the dtype of `scores`; half precision goes through float32.

    Hidden keys weigh exactly 0, a row that sees nothing is all 0. The fill is a constant, so no gradient flows by it.
    """
    if scores.shape[-1] == 0:  # there is no best one
        return scores
    wide = at_least_float32(scores)
    if allowed is None:
        return Entmax.apply(wide, alpha).to(scores.dtype)
    hidden = ~allowed
    weights = Entmax.apply(wide.masked_fill(hidden, HIDDEN_SCORE), alpha)
    return weights.masked_fill(hidden, 0.0).to(scores.dtype)
