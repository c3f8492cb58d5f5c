"""Softmax normalizer: exp(score) / sum of exp(scores). Bahdanau et al. 2015, eq. 6, arXiv:1409.0473."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import softmax_cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.masked import masked_softmax


@final
class SoftmaxNormalizer(Normalizer):
    """Weights are exp(score) divided by its sum over the allowed keys."""

    is_softmax: ClassVar[bool] = True

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        return Normalized(masked_softmax(scores, allowed))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy."""
        return softmax_cross_entropy(scores, allowed, target)
