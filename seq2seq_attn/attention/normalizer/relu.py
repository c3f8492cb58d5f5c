"""ReLU normalizer: relu(score) / n. Wortsman et al. 2023, section 3, arXiv:2309.08586."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import hide, visible_keys
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.precision import at_least_float32


@final
class ReluNormalizer(Normalizer):
    """Weights are max(0, score) divided by n, the number of keys that the row may attend to.

    The paper's n is the length of the sequence. Negative scores have weight 0, and a row may have no other weight.
    """

    sums_to_one: ClassVar[bool] = False
    needs_positive: ClassVar[bool] = True

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        wide = at_least_float32(scores)
        return Normalized(hide(wide.relu() / visible_keys(wide, allowed), allowed).to(scores.dtype))
