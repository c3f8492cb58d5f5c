"""Global and local pattern: |key - centre| <= k, or either is among the first g. Beltagy et al. 2020, 3.1,
arXiv:2004.05150 (Longformer).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import check_count, check_k
from seq2seq_attn.attention.pattern.tiled import TILE, TiledPattern

# Source positions from which gathered tiles are faster than all pairs: at least these, and TIMES k.
# Measured on one core of a busy machine, FUSED with 8 heads of 64, BLOCKS with 4 heads of 64 and sparsemax.
FUSED_FROM, BLOCKS_FROM, TIMES = 512, 320, 8


@final
class GlobalLocalPattern(TiledPattern):
    """A window around the centre; the first positions see all keys and are seen by all queries.

    The paper chooses the global positions for each task, as the classification token or the tokens of a question, and
    has a second set of projections for them. Here they are the first ones of a sentence, and there is one set. In
    causal attention a global position sees those before it only.

    Args:
        k: keys on each side of the centre, half of the paper's w.
        num_global: number of global positions, from the first.
        length_ratio: source positions per target position.

    Raises:
        UserError: for k below 1, a negative number of global positions, or a ratio that is not above 0.
    """

    def __init__(
        self,
        *,
        k: Annotated[int, "[1, 1000000]"],
        num_global: Annotated[int, "[0, inf)"],
        length_ratio: Annotated[float, "(0, inf)"],
    ) -> None:
        check_k(k)
        check_count("num_global", num_global, least=0)
        super().__init__(
            tile=TILE,
            landmarks=[*range(0, TILE, 2 * k + 1), TILE - 1],
            global_rows=num_global,
            fused_from=max(FUSED_FROM, TIMES * k),
            blocks_from=max(BLOCKS_FROM, TIMES * k),
            length_ratio=length_ratio,
        )
        self.k, self.num_global = k, num_global

    @property
    def options(self) -> tuple[Hashable, ...]:
        return self.k, self.num_global, self.length_ratio

    def sees(self, centre: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        return ((key - centre).abs() <= self.k) | (key < self.num_global) | (centre < self.num_global)
