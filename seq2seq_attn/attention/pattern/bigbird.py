"""BigBird pattern: blocks in a window, global blocks and random blocks. Zaheer et al. 2020, section 2,
arXiv:2007.14062.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import check_count
from seq2seq_attn.attention.pattern.tiled import TiledPattern, tile_of

# Source positions from which gathered tiles are faster than all pairs: at least these, and TIMES the keys of a row.
# Measured on one core of a busy machine, FUSED with 8 heads of 64, BLOCKS with 4 heads of 64 and sparsemax.
FUSED_FROM, BLOCKS_FROM, TIMES = 768, 512, 8


@final
class BigBirdPattern(TiledPattern):
    """Positions are cut into blocks. The blocks i of the centre and j of the key are connected if one of these holds:

    - window: |i - j| <= k,
    - global: i or j is among the first `num_global`,
    - random: j is one of the `num_random` blocks that i drew, or i is one of those that j drew.

    A block draws from the blocks before its window that are not global: one from each of `num_random` equal parts of
    them, so that the draws differ. Numbers are a hash of (seed, layer, block, draw). So neither padding nor the length
    changes a draw, and a causal query has as many random blocks as any other. The authors' code draws from the whole
    sentence, of fixed length, for the row alone, and has the last block among the global ones.

    Args:
        layer: number of the layer; each draws other blocks.
        block_length: positions of a block.
        k: blocks on each side of the centre's own.
        num_global: number of global blocks, from the first.
        num_random: number of blocks that a block draws.
        seed: of the draws.
        length_ratio: source positions per target position.

    Raises:
        UserError: for a block of nothing, a number below 0, or a ratio that is not above 0.
    """

    def __init__(
        self,
        *,
        layer: int,
        block_length: Annotated[int, "[1, inf)"],
        k: Annotated[int, "[0, inf)"],
        num_global: Annotated[int, "[0, inf)"],
        num_random: Annotated[int, "[0, inf)"],
        seed: Annotated[int, "[0, 4294967295]"],
        length_ratio: Annotated[float, "(0, inf)"],
    ) -> None:
        check_count("block_length", block_length, least=1)
        for name, number in (("k", k), ("num_global", num_global), ("num_random", num_random)):
            check_count(name, number, least=0)
        tile = tile_of(block_length)
        near = (2 * k + 1 + num_global + 2 * num_random) * block_length
        super().__init__(
            tile=tile,
            landmarks=range(0, tile, block_length),
            global_rows=num_global * block_length,
            fused_from=max(FUSED_FROM, TIMES * near),
            blocks_from=max(BLOCKS_FROM, TIMES * near),
            length_ratio=length_ratio,
        )
        self.layer, self.seed = layer, seed
        self.block_length, self.k, self.num_global, self.num_random = block_length, k, num_global, num_random

    @property
    def options(self) -> tuple[Hashable, ...]:
        drawn = self.num_random, self.seed, self.layer
        return self.block_length, self.k, self.num_global, *drawn, self.length_ratio

    def sees(self, centre: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        i, j = centre // self.block_length, key // self.block_length
        seen = ((i - j).abs() <= self.k) | (i < self.num_global) | (j < self.num_global)
        for draw in range(self.num_random):
            seen = seen | (j == self.drawn(i, draw)) | (i == self.drawn(j, draw))
        return seen

    def drawn(self, block: Int[Tensor, "..."], draw: int) -> Int[Tensor, "..."]:
        """Return the block that each block draws from one part of its candidates; -1 if that part is empty."""
        candidates = (block - self.k - self.num_global).clamp(min=0)
        first, end = (candidates * part // self.num_random for part in (draw, draw + 1))
        number = mixed(mixed(mixed(mixed(block) + draw) + self.layer) + self.seed)
        return torch.where(end > first, self.num_global + first + number % (end - first).clamp(min=1), -1)


def mixed(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Return a hash of 32 bits: Wellons' lowbias32, https://nullprogram.com/blog/2018/07/31/."""
    x = x & 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)
