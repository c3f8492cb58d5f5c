"""Identity normalizer: score / n, without a softmax. Shen et al. 2018, section 3.2 ("scaling"), arXiv:1812.01243."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.normalizer.masked import hide, visible_keys
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.nn.precision import at_least_float32


@final
class IdentityNormalizer(Normalizer):
    """Weights are the scores divided by n, the number of keys that the row may attend to; they may be negative.

    With an inner product the context is Q (K^T V) / n. In long sequences the parenthesis is computed first, as in the
    paper, which makes it linear in n; a pattern, another score or dropout of the weights needs the weights themselves.
    """

    is_identity: ClassVar[bool] = True
    sums_to_one: ClassVar[bool] = False
    needs_positive: ClassVar[bool] = True

    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        wide = at_least_float32(scores)
        return Normalized(hide(wide / visible_keys(wide, allowed), allowed).to(scores.dtype))
