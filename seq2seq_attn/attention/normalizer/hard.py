"""Hard normalizer: one position, drawn in training, the best otherwise. Xu et al. 2015, 4.1, arXiv:1502.03044."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import masked_log_softmax, softmax_cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.one_hot import best_position, gumbel_noise
from seq2seq_attn.nn.precision import at_least_float32


@final
class HardNormalizer(Normalizer):
    """One-hot weights: drawn from softmax(scores) in training, the arg max (the first of equals) in evaluation.

    A drawn position is a constant. The scores learn by REINFORCE only, from `log_prob` and `entropy`, which are
    multiplied by their weights here and are None in evaluation.

    Args:
        log_prob_weight: weight of the reward's term, the paper's lambda_r; 1 gives the gradient of the expected loss.
        entropy_weight: weight of the entropy, the paper's lambda_e.
        soft_probability: probability that a row takes the softmax itself in training, with its gradient. The paper
            draws this once for an image; here it is drawn once for a row, because steps are independent.

    Raises:
        UserError: for a `soft_probability` that is not from 0 to 1.
    """

    def __init__(
        self,
        *,
        log_prob_weight: Annotated[float, "[0, inf)"],
        entropy_weight: Annotated[float, "[0, inf)"],
        soft_probability: Annotated[float, "[0, 1]"],
    ) -> None:
        super().__init__()
        if not 0 <= soft_probability <= 1:
            raise UserError(
                f"attention.normalizer.soft_probability={soft_probability} is no probability; take one from 0 to 1"
            )
        self.log_prob_weight, self.entropy_weight = log_prob_weight, entropy_weight
        self.soft_probability = soft_probability

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        if not self.training:
            return Normalized(best_position(scores, allowed))
        wide = at_least_float32(scores)
        weights = best_position(wide + gumbel_noise(wide), allowed)
        probabilities, log_probs = masked_softmax(wide, allowed), masked_log_softmax(wide, allowed)
        log_prob = (weights * log_probs).sum(-1)
        entropy = -(probabilities * log_probs).sum(-1)
        if self.soft_probability > 0:
            soft = torch.rand_like(log_prob) < self.soft_probability
            weights = torch.where(soft.unsqueeze(-1), probabilities, weights)
            log_prob = log_prob.masked_fill(soft, 0.0)  # nothing was drawn
        return Normalized(weights.to(scores.dtype), self.log_prob_weight * log_prob, self.entropy_weight * entropy)

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of the softmax that positions are drawn from."""
        return softmax_cross_entropy(scores, allowed, target)
