"""Local pattern: |key - centre| <= k. Luong et al. 2015, section 3.2 (local-m), arXiv:1508.04025."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern, check_k, check_length_ratio


@final
class LocalPattern(Pattern):
    """A window of 2 k + 1 keys around the aligned place.

    A query whose place is more than k past the last key sees nothing, and gets zeros.

    Args:
        k: keys on each side of the centre.
        length_ratio: source places per target place.

    Raises:
        UserError: for k below 1, or a ratio that is not above 0.
    """

    def __init__(self, *, k: int, length_ratio: float) -> None:
        super().__init__()
        check_k(k)
        check_length_ratio(length_ratio)
        self.k, self.length_ratio = k, length_ratio

    def allowed(
        self, centre: Int[Tensor, "#batch target"], key_place: Int[Tensor, "source"]
    ) -> Bool[Tensor, "#batch target source"]:
        return (key_place - centre[..., None]).abs() <= self.k
