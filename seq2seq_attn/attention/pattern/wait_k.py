"""Wait-k pattern: a translation begins k tokens after its source. Ma et al. 2019, section 3.1, arXiv:1810.08398."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position, check_k, check_length_ratio


@final
class WaitKPattern(Pattern):
    """The keys that a simultaneous translation has read: k for the first target token, and one more for each other.

    A query whose centre is c sees the keys before c + k. With a `length_ratio` above 1 it catches up with a longer
    source, as in section 3.2 of the paper.

    The keys must know nothing of what follows them, or the translation would: `model.encoder.causal=true` makes the
    encoder of a Transformer read from left to right, as in Elbayad et al. 2020, arXiv:2005.08595.

    Args:
        k: keys that the first query sees.
        length_ratio: source positions per target position.

    Raises:
        UserError: for k below 1, or a ratio that is not above 0.
    """

    def __init__(self, *, k: Annotated[int, "[1, 1000000]"], length_ratio: Annotated[float, "(0, inf)"]) -> None:
        super().__init__()
        check_k(k)
        check_length_ratio(length_ratio)
        self.k, self.length_ratio = k, length_ratio

    @property
    def options(self) -> tuple[int, float]:
        return self.k, self.length_ratio

    def allowed(
        self, centre: Int[Tensor, "#batch target"], key_position: Int[Tensor, " source"]
    ) -> Bool[Tensor, "#batch target source"]:
        return key_position < centre[..., None] + self.k

    def window(self, position: int, source: int, causal: bool) -> slice:
        end = aligned_position(position, self.length_ratio) + self.k
        return slice(0, min(source, position + 1 if causal else source, end))
