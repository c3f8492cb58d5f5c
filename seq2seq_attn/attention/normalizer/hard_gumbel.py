"""Straight-through Gumbel-softmax: one position, a soft one's gradient. Jang et al. 2017, arXiv:1611.01144."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.one_hot import best_position, gumbel_noise
from seq2seq_attn.nn.precision import at_least_float32


@final
class HardGumbelNormalizer(Normalizer):
    """In training a position is drawn from softmax(scores); in evaluation it is the arg max, the first of equals.

    The drawn position goes forward; backward it is taken for softmax((scores + noise) / temperature), with the noise
    that drew it (section 2.2). So it needs no reward.

    Args:
        temperature: the lower, the nearer the two, and the larger the gradients.

    Raises:
        UserError: for a temperature that is not above 0.
    """

    def __init__(self, *, temperature: float) -> None:
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
