"""Length penalty |Y|, which gives the mean log-probability of a token. Bahdanau et al. 2015, arXiv:1409.0473."""

from __future__ import annotations

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty


@final
class MeanPenalty(LengthPenalty):
    """The length itself."""

    def __call__(self, length: Int[Tensor, " lengths"]) -> Float[Tensor, " lengths"]:
        return length.double()
