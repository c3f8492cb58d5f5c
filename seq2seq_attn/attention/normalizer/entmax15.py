"""1.5-entmax normalizer: between softmax and sparsemax. Peters et al. 2019, section 3, arXiv:1905.05702."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import entmax_loss, masked_entmax
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class Entmax15Normalizer(Normalizer):
    """Weights are max(0, score / 2 - tau)^2, with the tau that makes them sum to 1.

    A score 2 or more below the best has weight 0.
    """

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        return Normalized(masked_entmax(scores, allowed, alpha=1.5))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the Fenchel-Young loss of 1.5-entmax."""
        return entmax_loss(scores, allowed, target, alpha=1.5)
