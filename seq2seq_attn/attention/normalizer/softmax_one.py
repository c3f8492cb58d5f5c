"""Softmax-one normalizer: softmax with 1 added to its sum. Miller 2023, "Attention is off by one"."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import masked_sink_softmax, sink_cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class SoftmaxOneNormalizer(Normalizer):
    """Weights are exp(score) / (1 + sum over the allowed keys of exp(score)): one more key of score 0 and value 0.

    A row whose scores are all low attends to almost nothing. https://www.evanmiller.org/attention-is-off-by-one.html
    """

    is_softmax: ClassVar[bool] = True
    sums_to_one: ClassVar[bool] = False

    def sink_logits(self, keys: Float[Tensor, "*batch source width"]) -> Float[Tensor, "#heads"]:
        return keys.new_zeros(1)

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        return Normalized(masked_sink_softmax(scores, allowed, scores.new_zeros(1)))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the softmax over the keys and the one of score 0."""
        return sink_cross_entropy(scores, allowed, scores.new_zeros(1), target)
