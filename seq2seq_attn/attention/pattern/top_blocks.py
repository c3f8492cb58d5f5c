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
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.precision import at_least_float32

MAX_NUMBERS = 2**22  # of queries and blocks that are compared at once; 16 MiB in float32


@final
class TopBlocksPattern(Pattern):
    """A query sees its own block and those of the others that match it best.

    Queries and keys are compared as the score prepared them, head by head, so the score has to be an inner product.
    The mean is over the keys that the query may see: padding is not in it, and when causal, only complete blocks are
    before the query's own. In cross-attention no block is the query's own, and all of them are chosen by their means.
    Of blocks of equal means rounding chooses.

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
        # measured on one CPU core, 12 to 256 keys listed, 64 to 2048 positions
        self.listed_from = max(128, 8 * block_length * num_blocks)

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
        best = self._best(means, counts > 0, own)
        chosen = torch.zeros_like(F.pad(means, (1, 0)), dtype=torch.bool).scatter(-1, best + 1, True)[..., 1:]
        return chosen.repeat_interleave(self.block_length, -1)[..., : keys.shape[2]]

    def list_selected(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch kv_heads source width"],
        mask: Bool[Tensor, "batch source"] | None,
        own: Int[Tensor, " target"] | None,
        *,
        causal: bool,
    ) -> Int[Tensor, "batch heads target listed"]:
        """Compare the queries with the mean keys, of which there are few, instead of with all keys."""
        visible = torch.ones(1, keys.shape[2], dtype=torch.bool, device=keys.device) if mask is None else mask
        counts = self._by_block(visible).sum(-1)
        with torch.autocast(query.device.type, enabled=False):  # which would round the means
            wide = at_least_float32(keys).masked_fill(~visible[:, None, :, None], 0.0)
            sums = self._by_block(wide.mT).sum(-1)  # (batch, kv_heads, width, blocks)
            means = sums / counts.clamp(min=1)[:, None, None]
            rows = max(1, MAX_NUMBERS // (means.shape[0] * query.shape[1] * means.shape[3]))
            parts = query.split(rows, 2)
            positions = [None] * len(parts) if own is None else own.split(rows)
            best = [
                self._best(matmul_groups(at_least_float32(part), means), self._seen(visible, counts, at, causal), at)
                for part, at in zip(parts, positions, strict=True)
            ]
        blocks = torch.cat(best, 2).sort(-1).values[..., None]
        listed = blocks * self.block_length + torch.arange(self.block_length, device=blocks.device)
        return listed.masked_fill(blocks < 0, -1).flatten(-2)

    def _best(
        self,
        means: Float[Tensor, "batch heads target blocks"],
        seen: Bool[Tensor, "#batch #heads #target blocks"],
        own: Int[Tensor, " target"] | None,
    ) -> Int[Tensor, "batch heads target chosen"]:
        """Return the own block and those of the largest means, which are overwritten; -1: no more has a visible key."""
        if own is not None:  # a query past the last key has no own block
            blocks = torch.arange(means.shape[-1], device=means.device)
            means.masked_fill_(blocks == (own // self.block_length)[:, None], math.inf)
        means.masked_fill_(~seen, -math.inf)
        best = [torch.empty(*means.shape[:-1], 0, dtype=torch.long, device=means.device)]  # there may be no block
        for _ in range(min(self.num_blocks, means.shape[-1])):
            most, block = means.max(-1, keepdim=True)  # of equal ones the first
            best.append(block.masked_fill(most == -math.inf, -1))
            means.scatter_(-1, block, -math.inf)
        return torch.cat(best, -1)

    def _seen(
        self,
        visible: Bool[Tensor, "#batch source"],
        counts: Int[Tensor, "#batch blocks"],
        own: Int[Tensor, " target"] | None,
        causal: bool,
    ) -> Bool[Tensor, "#batch 1 #target blocks"]:
        """Return the blocks of which each query may see a key."""
        seen = (counts > 0)[:, None, None]
        if own is None or not causal:
            return seen
        blocks, block = torch.arange(counts.shape[1], device=own.device), own // self.block_length
        before = F.pad(visible.cumsum(-1), (1, 0))
        last, first = (own + 1).clamp(max=visible.shape[1]), (block * self.block_length).clamp(max=visible.shape[1])
        in_own = before[:, last] > before[:, first]
        return torch.where(blocks == block[:, None], in_own[:, None, :, None], seen & (blocks < block[:, None]))

    def _by_block(self, x: Tensor) -> Tensor:
        """Cut the last dimension into blocks, the last of which is filled up with zeros."""
        return F.pad(x, (0, -x.shape[-1] % self.block_length)).unflatten(-1, (-1, self.block_length))
