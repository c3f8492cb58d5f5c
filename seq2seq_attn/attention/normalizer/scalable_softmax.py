"""Scalable softmax (SSMax): softmax(s log(n) score) over n keys, s learned. Nakanishi 2025, arXiv:2501.19399."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.attention.normalizer.masked import softmax_cross_entropy, visible_keys
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.precision import at_least_float32


@final
class ScalableSoftmaxNormalizer(Normalizer):
    """Weights are n^(s score) divided by its sum over the n keys that the row may attend to, with an s for each head.

    The more keys there are, the more the scores are spread, so the largest weight does not fade with the length. The
    n of the paper is the length of the sequence; with that of the row, more padding changes nothing, and one step at a
    time equals all at once. A bias beside s, which the paper tries as well, is left out.

    Args:
        initial_scale: s before training. Where s log(n) is 1, as with 0.3 and 28 keys, it is a softmax.
    """

    def __init__(self, *, num_heads: int, initial_scale: Annotated[int | float, "(0, inf)"]) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.full((num_heads,), float(initial_scale)))

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        spread = spread_scores(at_least_float32(scores), allowed, self.scales[:, None, None])
        return Normalized(masked_softmax(spread, allowed).to(scores.dtype))

    def query_scale(self, visible: Float[Tensor, "#batch 1 #target 1"]) -> Float[Tensor, "#batch heads #target 1"]:
        return self.scales[:, None, None] * visible.log()

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the weights of the head."""
        spread = spread_scores(scores, allowed, self.scales[head])
        return softmax_cross_entropy(spread, allowed, target)


def spread_scores(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    scale: Float[Tensor, "*#rows 1"] | Float[Tensor, ""],
) -> Float[Tensor, "*rows keys"]:
    """Return s log(n) times the scores, in their dtype."""
    return scores * (scale.to(scores.dtype) * visible_keys(scores, allowed).log())
