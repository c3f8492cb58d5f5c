"""Block summary pattern: the own block, and the last c keys of every block. Child et al. 2019, 4.3 and eq. 7
("fixed"), arXiv:1904.10509.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import check_count
from seq2seq_attn.attention.pattern.tiled import TiledPattern, tile_of
from seq2seq_attn.errors import UserError

# Source positions from which gathered tiles are faster than all pairs: at least these, and TIMES the length of a block.
# Measured on one core of a busy machine, FUSED with 8 heads of 64, BLOCKS with 4 heads of 64 and sparsemax.
FUSED_FROM, BLOCKS_FROM, TIMES, FEW = 768, 512, 8, 4


@final
class BlockSummaryPattern(TiledPattern):
    """The last positions of a block can gather what is in it, and all others read it there.

    The paper's fixed pattern as one merged head; `sparse` is its strided one. The paper is causal; where attention is
    not, a query sees the last keys of the blocks after its own, too.

    Args:
        block_length: positions of a block, the paper's l.
        num_summary: keys at the end of a block that all queries see, the paper's c.
        length_ratio: source positions per target position.

    Raises:
        UserError: for a block of nothing, more summary keys than a block has, or a ratio that is not above 0.
    """

    def __init__(
        self,
        *,
        block_length: Annotated[int, "[1, inf)"],
        num_summary: Annotated[int, "[1, inf)"],
        length_ratio: Annotated[float, "(0, inf)"],
    ) -> None:
        check_count("block_length", block_length, least=1)
        check_count("num_summary", num_summary, least=1)
        if num_summary > block_length:
            raise UserError(
                f"a block of {block_length} positions has no {num_summary} last ones; set attention.pattern.num_summary"
                f"={block_length} or less"
            )
        tile = tile_of(block_length)
        few = FEW * num_summary <= block_length  # else a tile gathers most of the keys
        super().__init__(
            tile=tile,
            landmarks=range(0, tile, block_length),
            global_rows=0,
            fused_from=max(FUSED_FROM, TIMES * block_length) if few else sys.maxsize,
            blocks_from=max(BLOCKS_FROM, TIMES * block_length) if few else sys.maxsize,
            length_ratio=length_ratio,
        )
        self.block_length, self.num_summary = block_length, num_summary

    @property
    def options(self) -> tuple[Hashable, ...]:
        return self.block_length, self.num_summary, self.length_ratio

    def sees(self, centre: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        same_block = centre // self.block_length == key // self.block_length
        return same_block | (key % self.block_length >= self.block_length - self.num_summary)
