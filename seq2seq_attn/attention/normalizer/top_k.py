"""Top-k normalizer: softmax over the k best scores. Zhao et al. 2019, eq. 3-5, arXiv:1912.11637."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.one_hot import best_positions


@final
class TopKNormalizer(Normalizer):
    """Weights are the softmax over the k best allowed scores, and 0 elsewhere.

    Of equal scores the first positions are taken; the paper takes all that equal the k-th best. With k = 1 the weight
    is 1 and has no gradient; a k as large as the sentence gives `softmax`.

    Args:
        k: number of keys with a weight above 0.

    Raises:
        UserError: for a k below 1.
    """

    def __init__(self, *, k: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        if k < 1:
            raise UserError(f"attention.normalizer.k={k} leaves no key to attend to; take 1 or more")
        self.k = k

    @property
    def keeps(self) -> int:
        return self.k

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        if scores.shape[-1] <= self.k:
            return Normalized(masked_softmax(scores, allowed))
        return Normalized(masked_softmax(scores, best_positions(scores, allowed, self.k)))
