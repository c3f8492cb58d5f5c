"""Atrous pattern: key - centre is a multiple of k. Su Jianlin's reading, https://kexue.fm/archives/6853, of
Child et al. 2019, arXiv:1904.10509.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import Block, class_blocks
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position, check_k, check_length_ratio

# Source positions from which blocks are faster than all pairs. Measured on two CPU cores: FUSED with one thread and
# with two, which need more, 8 heads of 64, k = 32 and 64; BLOCKS with two threads, 4 heads of 64, k = 4.
FUSED_FROM = 256
BLOCKS_FROM = 192


@final
class AtrousPattern(Pattern):
    """The aligned position and every k-th key on both sides of it, like a dilated convolution.

    Args:
        k: distance from one key to the next.
        length_ratio: source positions per target position.

    Raises:
        UserError: for k below 1, or a ratio that is not above 0.
    """

    def __init__(self, *, k: Annotated[int, "[1, 1000000]"], length_ratio: Annotated[float, "(0, inf)"]) -> None:
        super().__init__()
        check_k(k)
        check_length_ratio(length_ratio)
        self.k, self.length_ratio = k, length_ratio
        if length_ratio == 1:
            self.fused_from, self.blocks_from = FUSED_FROM, BLOCKS_FROM

    @property
    def options(self) -> tuple[int, float]:
        return self.k, self.length_ratio

    def allowed(
        self, centre: Int[Tensor, "#batch target"], key_position: Int[Tensor, " source"]
    ) -> Bool[Tensor, "#batch target source"]:
        return (key_position - centre[..., None]) % self.k == 0

    def window(self, position: int, source: int, causal: bool) -> slice | None:
        start = aligned_position(position, self.length_ratio) % self.k
        end = min(source, position + 1) if causal else source
        return slice(start, end, self.k) if start < end else None

    def block_groups(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        return [class_blocks(target, source, self.k, causal)]
