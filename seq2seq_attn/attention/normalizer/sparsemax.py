"""Sparsemax normalizer: the nearest point of the simplex. Martins and Astudillo 2016, eq. 2, arXiv:1602.02068."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import entmax_loss, masked_entmax
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class SparsemaxNormalizer(Normalizer):
    """Weights are max(0, score - tau), with the tau that makes them sum to 1.

    A score 1 or more below the best has weight 0.
    """

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        return Normalized(masked_entmax(scores, allowed, alpha=2.0))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the sparsemax loss."""
        return entmax_loss(scores, allowed, target, alpha=2.0)
