"""Sink normalizer: softmax over the keys and a learned logit of value 0. OpenAI 2025 (gpt-oss), arXiv:2508.10925."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.attention.normalizer.masked import masked_sink_softmax, sink_cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class SinkNormalizer(Normalizer):
    """Weights are exp(score) / (exp(logit) + sum over the allowed keys of exp(score)), with a learned logit per head.

    The logits are 0 at first, where this is `softmax_one`; gpt-oss draws them from a normal distribution.
    """

    is_softmax: ClassVar[bool] = True
    sums_to_one: ClassVar[bool] = False

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_heads))

    def sink_logits(self, keys: Float[Tensor, "*batch source width"]) -> Float[Tensor, "#heads"]:
        return self.logits.to(keys.dtype)

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        return Normalized(masked_sink_softmax(scores, allowed, self.logits[:, None, None]))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the softmax over the keys and the learned logit."""
        return sink_cross_entropy(scores, allowed, self.logits[head : head + 1], target)
