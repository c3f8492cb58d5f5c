"""Length penalty |Y|^power; 1 gives the mean log-probability of a token. Bahdanau et al. 2015, arXiv:1409.0473."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty

MAX_POWER = 10  # scores of a million tokens, over 10^60, are then still far from 0 in float64


@final
class MeanPenalty(LengthPenalty):
    """A power of the length, as in most toolkits.

    Args:
        power: exponent; 1, also of runs that have recorded none, is the mean; 0 ranks by log-probability alone.

    Raises:
        UserError: if the power is negative, or over `MAX_POWER`.
    """

    def __init__(self, *, power: Annotated[int | float, "[0, 10]"] = 1.0) -> None:
        if not 0 <= power <= MAX_POWER:
            raise UserError(
                f"search.length_penalty.power={power} must be at least 0 and at most {MAX_POWER}; use 1 for the mean "
                "per token, 0 for no penalty"
            )
        self.power = power

    def __call__(self, length: Int[Tensor, " lengths"]) -> Float[Tensor, " lengths"]:
        return length.double() ** self.power
