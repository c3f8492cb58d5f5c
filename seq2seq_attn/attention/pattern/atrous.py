"""Atrous pattern: key - centre is a multiple of k. Su Jianlin's reading, https://kexue.fm/archives/6853, of
Child et al. 2019, arXiv:1904.10509.
"""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern, check_k, check_length_ratio


@final
class AtrousPattern(Pattern):
    """The aligned place and every k-th key on both sides of it, as a dilated convolution looks.

    Args:
        k: distance from one key to the next.
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
        return (key_place - centre[..., None]) % self.k == 0
