"""Dilated pattern: keys of the query's own segment of w at multiples of r, for several (w, r). Ding et al. 2023,
section 2.2, arXiv:2307.02486 (LongNet).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Annotated, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.tiled import TiledPattern, tile_of
from seq2seq_attn.errors import UserError

# Source positions from which gathered tiles are faster than all pairs: at least these, and TIMES the keys of a row in
# the head with most. Measured on one core of a busy machine, FUSED with 8 heads of 64, BLOCKS with 4 heads of 64 and
# sparsemax.
FUSED_FROM, BLOCKS_FROM, TIMES = 384, 320, 4


@final
class DilatedPattern(TiledPattern):
    """A short segment is seen whole, a longer one in wider steps: the union of all pairs (w, r).

    The paper computes each (w, r) by itself, for the queries at multiples of r only, and averages the outputs by the
    denominators of their softmax, so that a key in two of them counts twice. Here every query has every (w, r), and
    the union meets one normalizer, in which a key counts once. The paper's heads start at different offsets; here all
    heads start at the segment's first position.

    Args:
        segments: pairs (w, r) from the shortest segment on, length and step; each number divides the same number of
            the next pair, and r divides w.
        length_ratio: source positions per target position.

    Raises:
        UserError: for pairs that do not divide each other, none, or a ratio that is not above 0.
    """

    def __init__(
        self, *, segments: Annotated[Sequence[Sequence[int]], "[1, inf)"], length_ratio: Annotated[float, "(0, inf)"]
    ) -> None:
        self._check(segments)
        shortest = segments[0][0]
        tile = tile_of(shortest)
        longest = max(w // r for w, r in segments)
        super().__init__(
            tile=tile,
            landmarks=range(0, tile, shortest),
            global_rows=0,
            fused_from=max(FUSED_FROM, TIMES * longest),
            blocks_from=max(BLOCKS_FROM, TIMES * longest),
            length_ratio=length_ratio,
        )
        self.segments = tuple((w, r) for w, r in segments)

    @staticmethod
    def _check(segments: Sequence[Sequence[int]]) -> None:
        pairs = [len(pair) == 2 and min(pair) >= 1 and pair[0] % pair[1] == 0 for pair in segments]
        if (
            not pairs
            or not all(pairs)
            or any(b % a for one, two in pairwise(segments) for a, b in zip(one, two, strict=True))
        ):
            raise UserError(
                f"the dilated pattern got segments={[list(pair) for pair in segments]}; give pairs [length, step] in "
                "which the step divides the length and each number divides that of the next pair, as "
                "attention.pattern.segments=[[4,1],[16,4],[64,16]]"
            )

    @property
    def options(self) -> tuple[Hashable, ...]:
        return self.segments, self.length_ratio

    def sees(self, centre: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        (w, r), *longer = self.segments
        seen = (centre // w == key // w) & (key % r == 0)
        for w, r in longer:
            seen = seen | ((centre // w == key // w) & (key % r == 0))
        return seen
