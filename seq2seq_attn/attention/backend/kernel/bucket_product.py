"""softmax(query keys^T) values over the keys in a query's buckets, sorted by bucket: few others are scored.

Kitaev et al. 2020, section 2, arXiv:2001.04451 (Reformer), sort positions by bucket, too, and cut them into chunks of
equal length, so that a full bucket loses keys. Here the tiles of a bucket have as many keys as it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.attention.backend.kernel.block_product import widen
from seq2seq_attn.attention.backend.kernel.flash import combine
from seq2seq_attn.attention.block import HIDDEN, WHOLE
from seq2seq_attn.nn.differentiable import differentiable_once

LEAST_ROWS, MOST_ROWS = 32, 64  # of a tile
MAX_PAIRS = 2**18  # scored at once; 1 MiB in float32

Rows = Float[Tensor, "rows width"]
Keys = Float[Tensor, "keys width"]


def bucket_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    tiles: BucketTiles,
) -> Float[Tensor, "batch heads target value_width"]:
    """Return the context on a CPU; a row that sees nothing gets zeros."""
    width, value_width = query.shape[-1], values.shape[-1]
    flat = (widen(x, max(width, value_width)).flatten(0, 2) for x in (query, keys, values))
    context: Tensor = BucketAttention.apply(*flat, tiles)
    return context.view(*query.shape[:3], -1)[..., :value_width]


@final
class TileGroup(NamedTuple):
    """Some tiles of equally many keys, all of one round.

    Attributes:
        rows, keys: their numbers among all rows and all keys. A tile with fewer repeats its last one.
        repeated: which rows are repetitions.
        bias: added to the scores: HIDDEN where a row does not see a key, or saw it in an earlier round.
    """

    rows: Int[Tensor, "tiles rows"]
    keys: Int[Tensor, "tiles keys"]
    repeated: Bool[Tensor, "tiles rows"]
    bias: Float[Tensor, "tiles 1 rows keys"]


@final
class BucketTiles:
    """The pairs of queries and keys that share a bucket in any round, each pair once.

    A tile has rows of one bucket and the keys of that bucket; when causal, those before its last row.

    Args:
        query_buckets, key_buckets: the numbers of their buckets, round by round; heads that share keys are neighbours.
        mask: True where a key may be attended to; None: everywhere.
        own: positions of the rows among the keys in self-attention, where a row sees its own key, too, which is in no
            tile; None: in cross-attention.
        causal: in self-attention, a row sees keys up to its own position only.
    """

    def __init__(
        self,
        query_buckets: Int[Tensor, "rounds batch heads target"],
        key_buckets: Int[Tensor, "rounds batch kv_heads source"],
        mask: Bool[Tensor, "batch source"] | None,
        own: Int[Tensor, " target"] | None,
        *,
        causal: bool,
    ) -> None:
        rounds, batch, heads, self.target = query_buckets.shape
        kv_heads, self.source = key_buckets.shape[2:]
        self.own, self.causal = own, causal
        self.query_buckets, self.key_buckets = query_buckets.flatten(1), key_buckets.flatten(1)
        groups = torch.arange(heads) // (heads // kv_heads)
        self.first_key = ((torch.arange(batch)[:, None] * kv_heads + groups) * self.source).flatten()  # by sequence
        self.mask = None if mask is None else mask[:, None].expand(-1, heads, -1).flatten()  # by sequence and position

        # The numbers of a pair of round, sequence and bucket, and of a position there, sort as the pairs do.
        count = 1 + int(torch.maximum(query_buckets.amax(), key_buckets.amax()))
        sequences = torch.arange(rounds * batch * heads).view(rounds, batch, heads, 1) * count
        length = max(self.target, self.source)
        queries = (sequences + query_buckets) * length + torch.arange(self.target)
        keys = (sequences + key_buckets[:, :, groups]) * length + torch.arange(self.source)
        if mask is not None:
            keys = keys[mask[:, None].expand_as(keys)]
        queries, keys = queries.flatten().sort().values, keys.flatten().sort().values
        rows_of, keys_of = (torch.bincount(x // length, minlength=sequences.numel() * count) for x in (queries, keys))
        self.sorted_rows, self.sorted_keys = queries % length, keys % length

        self.rows = min(max(LEAST_ROWS, self.target // count), MOST_ROWS)
        tiles_of = -(rows_of // -self.rows)
        bucket = torch.arange(len(tiles_of)).repeat_interleave(tiles_of)
        first_tile = tiles_of.cumsum(0) - tiles_of
        before = self.rows * (torch.arange(len(bucket)) - first_tile[bucket])  # rows of the bucket in earlier tiles
        row, key = ((x.cumsum(0) - x)[bucket] for x in (rows_of, keys_of))
        row, rows, num_keys = row + before, (rows_of[bucket] - before).clamp(max=self.rows), keys_of[bucket]
        if causal:
            assert own is not None
            last = bucket * length + own[self.sorted_rows[row + rows - 1]]
            num_keys = torch.searchsorted(keys, last) - key
        sequence = bucket // count
        columns = -(num_keys // -WHOLE) * WHOLE
        number = sequence // (batch * heads)  # of the round
        order = (number * (length + WHOLE) + columns).argsort()
        order = order[num_keys[order] > 0]
        self.kinds = torch.stack([number, columns], 1)[order]
        self.table = torch.stack([sequence % (batch * heads), row, rows, key, num_keys], 1)[order]

    @property
    def own_keys(self) -> tuple[Int[Tensor, " rows"], Bool[Tensor, " rows"]] | None:
        """The number of the own key of each row, and whether the row sees it; None in cross-attention."""
        if self.own is None:
            return None
        numbers = (self.first_key[:, None] + self.own).flatten()
        seen = torch.ones_like(numbers, dtype=torch.bool)
        if self.mask is not None:
            seen = self.mask.view(-1, self.source)[:, self.own].flatten()
        return numbers, seen

    def tiles(self, like: Float[Tensor, "..."]) -> Iterator[TileGroup]:
        """Yield all tiles, a few at once, in the order of their rounds."""
        runs, counts = self.kinds.unique_consecutive(dim=0, return_counts=True)
        for (number, columns), some in zip(runs.tolist(), self.table.split(counts.tolist()), strict=True):
            for few in some.split(max(1, MAX_PAIRS // (self.rows * columns))):
                yield self._group(number, columns, few, like)

    def _group(self, number: int, columns: int, table: Int[Tensor, "tiles _"], like: Float[Tensor, "..."]) -> TileGroup:
        sequence, row, rows, key, keys = table[:, :, None].unbind(1)
        every_row, every_key = torch.arange(self.rows), torch.arange(columns)
        positions = self.sorted_rows[row + torch.minimum(every_row, rows - 1)]
        key_positions = self.sorted_keys[key + torch.minimum(every_key, keys - 1)]
        at, key_at = sequence * self.target + positions, self.first_key[sequence] + key_positions
        hidden = (every_key >= keys)[:, None]
        if self.own is not None:
            own = self.own[positions][:, :, None]
            seen = key_positions[:, None]
            hidden = hidden | (seen >= own if self.causal else seen == own)
        for earlier in range(number):
            mine, theirs = self.query_buckets[earlier][at], self.key_buckets[earlier][key_at]
            hidden = hidden | (mine[:, :, None] == theirs[:, None])
        return TileGroup(at, key_at, every_row >= rows, hidden.to(like.dtype).mul_(HIDDEN)[:, None])


@final
class BucketAttention(torch.autograd.Function):
    """softmax(query keys^T) values over the pairs of the tiles and the own key of each row, by the CPU's flash kernel.

    Tiles are combined through their log-sum-exps as in `flash.BlockAttention`.
    """

    @staticmethod
    def forward(ctx: Any, query: Rows, keys: Keys, values: Keys, tiles: BucketTiles) -> Rows:
        own = tiles.own_keys
        if own is None:
            context, total = torch.zeros_like(query), query.new_full((len(query), 1), HIDDEN)
        else:
            context, total = values.index_select(0, own[0]), own_scores(query, keys, *own)
        for rows, columns, _, bias in tiles.tiles(query):
            q, out, lse = (take(x, rows) for x in (query, context, total))
            more, more_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, take(keys, columns), take(values, columns), attn_mask=bias, scale=1.0
            )
            combine(out, lse, more, more_lse.unsqueeze(-1))
            context.index_copy_(0, rows.flatten(), out.flatten(0, 2))
            total.index_copy_(0, rows.flatten(), lse.flatten(0, 2))
        blind = total < HIDDEN / 2
        context.masked_fill_(blind, 0.0)
        total.masked_fill_(blind, -HIDDEN)  # so that their pairs weigh exp(score + HIDDEN) = 0
        ctx.save_for_backward(query, keys, values, context, total)
        ctx.tiles = tiles
        return context

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Rows) -> tuple[Tensor | None, ...]:
        query, keys, values, context, total = ctx.saved_tensors
        own = ctx.tiles.own_keys
        query_grad, keys_grad, values_grad = (torch.zeros_like(x) for x in (query, keys, values))
        if own is not None:
            weights = (own_scores(query, keys, *own) - total).exp_()
            change = (upstream * (values.index_select(0, own[0]) - context)).sum(-1, keepdim=True).mul_(weights)
            torch.mul(keys.index_select(0, own[0]), change, out=query_grad)
            keys_grad.index_add_(0, own[0], query * change)
            values_grad.index_add_(0, own[0], upstream * weights)
        for rows, columns, repeated, bias in ctx.tiles.tiles(query):
            up = take(upstream, rows).masked_fill_(repeated[:, None, :, None], 0.0)  # a row counts once
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                up,
                take(query, rows),
                take(keys, columns),
                take(values, columns),
                take(context, rows),
                take(total, rows).squeeze(-1),
                0.0,
                False,
                attn_mask=bias,
                scale=1.0,
            )
            for grad, at, more in zip(
                (query_grad, keys_grad, values_grad), (rows, columns, columns), gradients, strict=True
            ):
                grad.index_add_(0, at.flatten(), more.flatten(0, 2))
        return query_grad, keys_grad, values_grad, None


def own_scores(
    query: Rows, keys: Keys, own: Int[Tensor, " rows"], seen: Bool[Tensor, " rows"]
) -> Float[Tensor, "rows 1"]:
    """Return the inner product of each row and its own key, HIDDEN where it does not see it."""
    return (query * keys.index_select(0, own)).sum(-1).masked_fill_(~seen, HIDDEN)[:, None]


def take(x: Rows, at: Int[Tensor, "tiles some"]) -> Float[Tensor, "tiles 1 some width"]:
    """Return some rows of each tile, as one head of a sentence."""
    return x.index_select(0, at.flatten()).view(len(at), 1, at.shape[1], -1)
