"""Adaptive entmax: each head learns its own alpha of alpha-entmax. Correia et al. 2019, section 3, arXiv:1909.00015."""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.attention.normalizer.masked import HIDDEN_SCORE, fenchel_young_loss, hide
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.attention.normalizer.threshold import entmax_step, newton_threshold
from seq2seq_attn.nn.precision import at_least_float32

LEAST = 0.01  # of alpha - 1: powers of 1 / (alpha - 1) lose more digits the nearer alpha is to 1


@final
class AdaptiveEntmaxNormalizer(Normalizer):
    """Weights are max(0, (alpha - 1) score - tau)^(1 / (alpha - 1)), with the tau that makes them sum to 1.

    alpha = 1 + sigmoid(a) is between 1 (`softmax`) and 2 (`sparsemax`), with a learned a for each head. It is 0 at
    first, where this is `entmax15`. An alpha below 1.01 is taken for 1.01.
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_heads))

    @property
    def excess(self) -> Float[Tensor, " heads"]:
        """alpha - 1 of each head, in float32 at least; where `LEAST` takes its place, it keeps its gradient."""
        excess = at_least_float32(self.logits).sigmoid()
        return excess + (LEAST - excess).clamp(min=0.0).detach()

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        weights = masked_alpha_entmax(at_least_float32(scores), allowed, self.excess[:, None, None])
        return Normalized(weights.to(scores.dtype))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the Fenchel-Young loss of entmax with the alpha of the head, whose gradient reaches alpha, too."""
        excess = self.excess[head].to(scores.dtype)
        weights = masked_alpha_entmax(scores.detach(), allowed, excess.detach())
        return fenchel_young_loss(scores, weights, target, 1 + excess)


def masked_alpha_entmax(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    excess: Float[Tensor, "*#rows 1"] | Float[Tensor, ""],
) -> Float[Tensor, "*rows keys"]:
    """Return entmax weights of the last dimension; hidden keys have weight 0, and a row that sees nothing is all 0."""
    if scores.shape[-1] == 0:  # no best score
        return scores
    seen = scores if allowed is None else scores.masked_fill(~allowed, HIDDEN_SCORE)
    return hide(AlphaEntmax.apply(seen, excess.to(scores.dtype).expand(*scores.shape[:-1], 1)), allowed)


@final
class AlphaEntmax(torch.autograd.Function):
    """Entmax for any alpha between 1 and 2, and its gradients by scores and alpha.

    With the weights p of a row, p~ = p^(2 - alpha) / sum of p^(2 - alpha) where p is above 0, and h = -p log p,

        dp / dscore = diag(p^(2 - alpha)) - p^(2 - alpha) p~^T,
        dp / dalpha = (p - p~) / (alpha - 1)^2 + (h - p~ sum(h)) / (alpha - 1)

    (Peters et al. 2019, proposition 2, arXiv:1905.05702, and Correia et al. 2019, proposition 1).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Float[Tensor, "*rows keys"], excess: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows keys"]:
        scaled = excess * (scores - scores.amax(-1, keepdim=True))
        weights = entmax_powers(scaled - entmax_threshold(scaled, excess), excess)
        return weights / weights.sum(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        weights, excess = ctx.saved_tensors
        none = weights == 0
        seen = weights.masked_fill(none, 1.0)  # whose power and logarithm have finite derivatives
        slope = (seen ** (1 - excess)).masked_fill(none, 0.0)
        shares = slope / slope.sum(-1, keepdim=True)
        by_scores = upstream * slope
        by_scores = by_scores - by_scores.sum(-1, keepdim=True) * shares
        entropy = -seen * seen.log()
        by_alpha = (weights - shares) / excess**2 + (entropy - shares * entropy.sum(-1, keepdim=True)) / excess
        return by_scores, (upstream * by_alpha).sum(-1, keepdim=True)


def entmax_threshold(scaled: Float[Tensor, "*rows keys"], excess: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows 1"]:
    """Return tau by Newton's method or, where it does not serve, by halving an interval once for each bit of a number.

    tau is between -1, where the best weight alone is 1, and the tau where it is 1 / keys.

    Args:
        scaled: the scores, multiplied by alpha - 1, the best of a row being 0.
    """
    found = newton_threshold(scaled, lambda above: entmax_step(above, excess))
    if found is not None:
        return found
    low, high = -torch.ones_like(excess), -(scaled.shape[-1] ** -excess)
    for _ in range(torch.finfo(scaled.dtype).bits):
        middle = (low + high) / 2
        enough = entmax_powers(scaled - middle, excess).sum(-1, keepdim=True) >= 1
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low


def entmax_powers(above: Float[Tensor, "*rows keys"], excess: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows keys"]:
    """Return max(0, above)^(1 / (alpha - 1))."""
    return above.clamp(min=0) ** (1 / excess)
