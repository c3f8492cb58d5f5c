"""Straight-through Gumbel-softmax: one position with the gradient of a softmax. Jang et al. 2017, arXiv:1611.01144."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import softmax_cross_entropy
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.one_hot import best_position, gumbel_noise
from seq2seq_attn.nn.precision import at_least_float32


@final
class HardGumbelNormalizer(Normalizer):
    """One-hot weights: drawn from softmax(scores) in training, the arg max (the first of equals) in evaluation.

    The gradient is that of softmax((scores + noise) / temperature), with the noise that drew the position
    (section 2.2). No reward is needed.

    Args:
        temperature: the lower it is, the nearer is the softmax to one-hot, and the larger are the gradients.

    Raises:
        UserError: for a temperature that is not above 0.
    """

    def __init__(self, *, temperature: Annotated[float, "(0, inf)"]) -> None:
        super().__init__()
        if temperature <= 0:
            raise UserError(
                f"attention.normalizer.temperature={temperature} is not above 0; take one that is, such as 1.0"
            )
        self.temperature = temperature

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        if not self.training:
            return Normalized(best_position(scores, allowed))
        wide = at_least_float32(scores)
        noisy = wide + gumbel_noise(wide)
        soft = masked_softmax(noisy / self.temperature, allowed)
        # The difference is exactly 0, so the weights are exactly one position.
        return Normalized((best_position(noisy, allowed) + (soft - soft.detach())).to(scores.dtype))

    def alignment_loss(
        self, scores: Tensor, weights: Tensor, allowed: Tensor | None, target: Tensor, head: int
    ) -> Float[Tensor, "*rows"]:
        """Return the cross-entropy of softmax(scores), without noise."""
        return softmax_cross_entropy(scores, allowed, target)
