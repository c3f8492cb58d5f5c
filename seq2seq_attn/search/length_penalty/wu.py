"""Length penalty ((5 + |Y|) / 6)^alpha. Wu et al. 2016, eq. 14, arXiv:1609.08144."""

from __future__ import annotations

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty


@final
class WuPenalty(LengthPenalty):
    """The length penalty of Wu et al.

    Args:
        alpha: exponent; 0 ranks by log-probability alone, which favours short translations.

    Raises:
        UserError: if alpha is negative.
    """

    def __init__(self, *, alpha: int | float) -> None:
        if alpha < 0:
            raise UserError(
                f"search.length_penalty.alpha={alpha} would favour short translations even more than log-probability "
                "does; use alpha >= 0"
            )
        self.alpha = alpha

    def __call__(self, length: Int[Tensor, " lengths"]) -> Float[Tensor, " lengths"]:
        return ((5 + length.double()) / 6) ** self.alpha
