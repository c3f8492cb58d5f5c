"""Stick-breaking: each key takes a share of what later keys left. Tan et al. 2025, eq. 1-2, arXiv:2410.17980."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.decayed_sums import until_end
from seq2seq_attn.attention.normalizer.masked import cross_entropy, hide
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.precision import at_least_float32


@final
class StickBreakingNormalizer(Normalizer):
    """Weights are sigmoid(score_j) times the product of 1 - sigmoid(score_k) over the keys k > j that the row sees.

    The last key takes the share sigmoid(score) of a stick of length 1, the one before it a share of the rest, and so
    on, so the order of the keys matters and no position encoding is needed. What the first key leaves is on no key.

    The paper is causal and leaves out the query's own token; here the row decides, as with every normalizer, so in
    causal self-attention the token itself is the last key, and in an encoder or over a source the last token is.
    """

    sums_to_one: ClassVar[bool] = False

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        weights = log_weights(at_least_float32(scores), allowed).exp()
        return Normalized(hide(weights, allowed).to(scores.dtype))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the weights; what is on no key is lost, as the target has none there."""
        return cross_entropy(log_weights(scores, allowed), target)


def log_weights(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*rows keys"]:
    """Return the logarithms of the weights; those of hidden keys are finite and mean nothing."""
    left = F.logsigmoid(-scores)  # of what a key leaves
    if allowed is not None:
        left = left.masked_fill(~allowed, 0.0)
    return F.logsigmoid(scores) + until_end(left)
