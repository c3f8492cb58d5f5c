"""Length penalty ((5 + |Y|) / 6)^alpha. Wu et al. 2016, eq. 14, arXiv:1609.08144."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.length_penalty.mean import MAX_POWER


@final
class WuPenalty(LengthPenalty):
    """The length penalty of Wu et al.

    Args:
        alpha: exponent; 0 ranks by log-probability alone, which favours short translations.

    Raises:
        UserError: if alpha is negative, or over `MAX_POWER`.
    """

    def __init__(self, *, alpha: Annotated[int | float, "[0, 10]"]) -> None:
        if not 0 <= alpha <= MAX_POWER:
            raise UserError(
                f"search.length_penalty.alpha={alpha} must be at least 0 and at most {MAX_POWER}; use 0 for no penalty"
            )
        self.alpha = alpha

    def __call__(self, length: Int[Tensor, " lengths"]) -> Float[Tensor, " lengths"]:
        return ((5 + length.double()) / 6) ** self.alpha
