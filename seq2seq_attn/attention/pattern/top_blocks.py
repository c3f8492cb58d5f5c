"""Top blocks pattern: the blocks whose mean keys have the largest inner products with the query. Lu et al. 2025,
section 2.2, arXiv:2502.13189 (MoBA).
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.pattern.pattern import Pattern, check_count
from seq2seq_attn.nn.precision import at_least_float32


@final
class TopBlocksPattern(Pattern):
    """A query sees its own block and those of the others that match it best.

    Queries and keys are compared as the score prepared them, head by head, so the score has to be an inner product.
    The mean is over the keys that the query may see: padding is not in it, and when causal, only complete blocks are
    before the query's own. In cross-attention no block is the query's own, and all of them are chosen by their means.
    Of blocks of equal means the first is taken.

    Args:
        block_length: positions of a block.
        num_blocks: blocks that a query sees, the paper's k; in self-attention its own is one of them.

    Raises:
        UserError: for a block of nothing, or no block.
    """

    reads_query: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def __init__(self, *, block_length: Annotated[int, "[1, inf)"], num_blocks: Annotated[int, "[1, inf)"]) -> None:
        super().__init__()
        check_count("block_length", block_length, least=1)
        check_count("num_blocks", num_blocks, least=1)
        self.block_length, self.num_blocks = block_length, num_blocks

    def select(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        visible: Bool[Tensor, "#batch #heads #target #source"] | None,
        own: Int[Tensor, " target"] | None,
    ) -> Bool[Tensor, "batch heads target source"]:
        with torch.autocast(query.device.type, enabled=False):  # which would round the products
            products = at_least_float32(query) @ at_least_float32(keys).mT  # their mean is that of query and mean key
        visible = torch.ones_like(products, dtype=torch.bool) if visible is None else visible.expand_as(products)
        sums = self._by_block(products.masked_fill(~visible, 0.0)).sum(-1)
        counts = self._by_block(visible).sum(-1)
        means = sums / counts.clamp(min=1)
        if own is not None:
            blocks = torch.arange(means.shape[-1], device=own.device)
            means = means.masked_fill(blocks == (own // self.block_length)[:, None], math.inf)
        means = means.masked_fill(counts == 0, -math.inf)
        best = means.sort(dim=-1, descending=True, stable=True).indices[..., : self.num_blocks]
        chosen = torch.zeros_like(means, dtype=torch.bool).scatter(-1, best, True) & (counts > 0)
        return chosen.repeat_interleave(self.block_length, -1)[..., : keys.shape[2]]

    def _by_block(self, x: Tensor) -> Tensor:
        """Cut the last dimension into blocks, the last of which is filled up with zeros."""
        return F.pad(x, (0, -x.shape[-1] % self.block_length)).unflatten(-1, (-1, self.block_length))
