"""Sparse pattern: |key - centre| <= k, or a multiple of k. Child et al. 2019, 4.3 and eq. 7, arXiv:1904.10509."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.block import Band, Block, class_blocks, window_blocks
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position, check_k, check_length_ratio

# Source positions from which blocks are faster than all pairs: at least the first number, and the second times k.
# Measured on two CPU cores: FUSED with one thread and with two, 8 heads of 64, k = 32 and 64; BLOCKS with one thread,
# 4 heads of 64, k = 4 to 16.
FUSED_FROM, FUSED_FROM_K = 640, 8
BLOCKS_FROM, BLOCKS_FROM_K = 256, 8


@final
class SparsePattern(Pattern):
    """The union of the local and the atrous pattern: all near keys, and every k-th of the far ones.

    The paper's strided pattern as one merged head. The paper is causal; where attention is not, the pattern extends
    to both sides of the centre (Su Jianlin, https://kexue.fm/archives/6853).

    Args:
        k: keys on each side of the centre, and distance from one far key to the next.
        length_ratio: source positions per target position.

    Raises:
        UserError: for k below 1, or a ratio that is not above 0.
    """

    scattered: ClassVar[bool] = True

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
        distance = key_position - centre[..., None]
        return (distance.abs() <= self.k) | (distance % self.k == 0)

    def window(self, position: int, source: int, causal: bool) -> Int[Tensor, " keys"] | None:
        centre = aligned_position(position, self.length_ratio)
        end = min(source, position + 1) if causal else source
        near = range(max(0, centre - self.k), min(end, centre + self.k + 1))
        seen = sorted({*near, *range(centre % self.k, end, self.k)})
        return torch.tensor(seen) if seen else None

    def block_groups(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        """Return the residue classes, and the window without the distances 0 and k, which they hold already."""
        far = class_blocks(target, source, self.k, causal)
        if self.k == 1:
            return [far]
        return [far, window_blocks(target, source, Band(self.k - 1, 0 if causal else self.k - 1, exclude_self=True))]
