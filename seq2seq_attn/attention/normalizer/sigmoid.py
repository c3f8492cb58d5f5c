"""Sigmoid normalizer: each weight by itself. Ramapuram et al. 2024, eq. 3 and section 3.1, arXiv:2409.04431."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import hide, visible_keys
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.precision import at_least_float32


@final
class SigmoidNormalizer(Normalizer):
    """Weights are sigmoid(score - log n), where n is the number of keys that the row may attend to.

    Scores of 0 give a sum just below 1, as the paper asks of its bias b = -log n. The paper's n is the length of the
    sequence; with that of the row, more padding changes nothing, and one step at a time equals all at once.
    """

    sums_to_one: ClassVar[bool] = False

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        wide = at_least_float32(scores)
        weights = (wide - visible_keys(wide, allowed).log()).sigmoid()
        return Normalized(hide(weights, allowed).to(scores.dtype))
