"""Local pattern: |key - centre| <= k. Luong et al. 2015, section 3.2 (local-m), arXiv:1508.04025."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import Band, Block, window_blocks
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position, check_k, check_length_ratio

# Source positions from which blocks are faster than all pairs: at least the first number, and the second times k.
# Measured on two CPU cores: FUSED with one thread and with two, which need more, 8 heads of 64, k = 16 to 64; BLOCKS
# with two threads, 4 heads of 64, k = 4 to 16.
FUSED_FROM, FUSED_FROM_K = 320, 7
BLOCKS_FROM, BLOCKS_FROM_K = 256, 8


@final
class LocalPattern(Pattern):
    """A window of 2 k + 1 keys around the aligned position.

    A query more than k positions past the last key sees nothing and gets zeros.

    Args:
        k: keys on each side of the centre.
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
            self.fused_from = max(FUSED_FROM, FUSED_FROM_K * k)
            self.blocks_from = max(BLOCKS_FROM, BLOCKS_FROM_K * k)

    @property
    def options(self) -> tuple[int, float]:
        return self.k, self.length_ratio

    def allowed(
        self, centre: Int[Tensor, "#batch target"], key_position: Int[Tensor, " source"]
    ) -> Bool[Tensor, "#batch target source"]:
        return (key_position - centre[..., None]).abs() <= self.k

    def window(self, position: int, source: int, causal: bool) -> slice | None:
        centre = aligned_position(position, self.length_ratio)
        end = min(source, position + 1 if causal else source, centre + self.k + 1)
        start = max(0, centre - self.k)
        return slice(start, end) if start < end else None

    def block_groups(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        return [window_blocks(target, source, Band(self.k, 0 if causal else self.k))]
