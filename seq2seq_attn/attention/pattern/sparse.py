"""Sparse pattern: |key - centre| <= k, or a multiple of k. Child et al. 2019, 4.3 and eq. 7, arXiv:1904.10509."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern, check_k, check_length_ratio


@final
class SparsePattern(Pattern):
    """All that is near, and every k-th key that is far: local and atrous in one.

    The paper's strided pattern as one merged head. The paper is causal; where attention is not, the pattern
    stands on both sides of the centre (Su Jianlin, https://kexue.fm/archives/6853).

    Args:
        k: keys on each side of the centre, and distance from one far key to the next.
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
        distance = key_place - centre[..., None]
        return (distance.abs() <= self.k) | (distance % self.k == 0)
