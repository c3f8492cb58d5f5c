"""Entmax under a mask."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.entmax import Entmax
from seq2seq_attn.nn.precision import at_least_float32

# Finite, because a row of -inf gives NaN; its square, which entmax15 sums, is finite in float32, too.
HIDDEN_SCORE = -1e15


def masked_entmax(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None, alpha: float
) -> Float[Tensor, "*rows keys"]:
    """Return entmax weights of the last dimension, in the dtype of `scores`; half precision goes through float32.

    Hidden keys have weight 0, and a row that sees nothing is all 0. The fill is a constant and has no gradient.
    """
    if scores.shape[-1] == 0:  # no best score
        return scores
    wide = at_least_float32(scores)
    if allowed is None:
        return Entmax.apply(wide, alpha).to(scores.dtype)
    hidden = ~allowed
    weights = Entmax.apply(wide.masked_fill(hidden, HIDDEN_SCORE), alpha)
    return weights.masked_fill(hidden, 0.0).to(scores.dtype)
