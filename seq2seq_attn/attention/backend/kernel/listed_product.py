"""Products of queries with the few keys that each lists, whose vectors are read where they lie and not copied.

Both are embedding bags of torch: a row's list is a bag of keys, and for the gradient of the keys, a key's list of rows
is one, too.
"""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.nn.cached_property import CachedProperty
from seq2seq_attn.nn.differentiable import differentiable_once

# Of an embedding bag. Autograd calls it, but not in inference mode.
GRADIENT_OF_WEIGHTS = torch.ops.aten._embedding_bag_per_sample_weights_backward
SUM = 0  # the mode of a bag

Table = Float[Tensor, "batch kv_heads source width"]
Pairs = Float[Tensor, "batch heads target listed"]
Rows = Float[Tensor, "batch heads target width"]


@final
class Lists:
    """The keys that each row lists; those of a head of queries are in the head of keys that its group shares.

    Args:
        keys: their positions, which are all within the source.
    """

    def __init__(
        self, keys: Int[Tensor, "#batch #heads target listed"], *, batch: int, heads: int, kv_heads: int, source: int
    ) -> None:
        self.shape = torch.Size((batch, heads, *keys.shape[2:]))
        self.table = torch.Size((batch, kv_heads, source))
        groups = torch.arange(heads, device=keys.device) // (heads // kv_heads)
        first = (torch.arange(batch, device=keys.device)[:, None] * kv_heads + groups) * source
        self.bags = (keys + first[:, :, None, None]).flatten(0, 2)

    @CachedProperty
    def rows_by_key(self) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " keys"]]:
        """The pairs sorted by their keys, and where those of each key begin."""
        keys, order = self.bags.flatten().sort(stable=True)
        return order, torch.searchsorted(keys, torch.arange(self.table.numel(), device=keys.device))

    def products(self, rows: Rows, table: Table) -> Pairs:
        """Return the inner products of each row with its keys: the gradient of `sums` by the weights."""
        flat, listed = rows.flatten(0, 2), self.bags.shape[1]
        bag = torch.arange(len(flat), device=flat.device)
        found = GRADIENT_OF_WEIGHTS(
            flat, table.flatten(0, 2), self.bags.flatten(), bag * listed, bag.repeat_interleave(listed), SUM
        )
        return found.view(self.shape)

    def sums(self, weights: Pairs, table: Table) -> Rows:
        """Return the sum of the keys of each row, times their weights."""
        by_row = weights.reshape(self.bags.shape)
        found = F.embedding_bag(self.bags, table.flatten(0, 2), mode="sum", per_sample_weights=by_row)
        return found.view(*self.shape[:3], -1)

    def spread(self, weights: Pairs, rows: Rows) -> Table:
        """Return the sum of the rows of each key, times their weights: the gradient of `sums` by the keys."""
        order, starts = self.rows_by_key
        by_key = weights.flatten()[order]
        found = F.embedding_bag(
            order // self.shape[3], rows.flatten(0, 2), starts, mode="sum", per_sample_weights=by_key
        )
        return found.view(*self.table, -1)


@final
class ListedScores(torch.autograd.Function):
    """The inner products of each query with the keys that it lists."""

    @staticmethod
    def forward(ctx: Any, query: Rows, keys: Table, lists: Lists) -> Pairs:
        ctx.lists = lists
        ctx.save_for_backward(query, keys)
        return lists.products(query, keys)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Pairs) -> tuple[Tensor, Tensor, None]:
        query, keys = ctx.saved_tensors
        return ctx.lists.sums(upstream, keys), ctx.lists.spread(upstream, query), None


@final
class ListedContext(torch.autograd.Function):
    """The values of the keys that each query lists, averaged by their weights."""

    @staticmethod
    def forward(ctx: Any, weights: Pairs, values: Table, lists: Lists) -> Rows:
        ctx.lists = lists
        ctx.save_for_backward(weights, values)
        return lists.sums(weights, values)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Rows) -> tuple[Tensor, Tensor, None]:
        weights, values = ctx.saved_tensors
        return ctx.lists.products(upstream, values), ctx.lists.spread(weights, upstream), None
