"""KernelAttention: weights that are inner products of features, so that sums over the keys replace all pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.causal_sums import CHUNK, causal_sums
from seq2seq_attn.attention.decayed_sums import DecayedChunks, decay_of_pairs, decayed_sum
from seq2seq_attn.attention.feature_map.feature_map import check_max_length
from seq2seq_attn.attention.head_sizes import head_sizes
from seq2seq_attn.attention.key_mask import check_rows
from seq2seq_attn.attention.linear_attention import LinearAttention, check_one_mask, linear_projections
from seq2seq_attn.attention.state import Attended, AttentionMemory
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.cached_property import CachedProperty
from seq2seq_attn.nn.heads import check_heads, join_heads, split_heads
from seq2seq_attn.nn.masked import intersect_masks
from seq2seq_attn.nn.precision import at_least_float32

MIN_DENOMINATOR = 1e4  # times the smallest normal number; positive features give greater ones


@final
@dataclass(frozen=True)
class KernelMemory(AttentionMemory):
    """Sums over keys and values, and those keys and values themselves that a mask or causality may still hide.

    Attributes:
        keys: features, zeros where the mask of the sentence hides a key.
        values: cut into heads, with a last column of ones, whose sum is the denominator.
        mask: True where a key may be attended to, for each query; None: for all queries the same.
        before: sum of phi(k) v^T over the `num_before` positions before `keys`; None: there are none.
        log_decay: of each token, 0 where the mask of the sentence hides it; then `before` and all other sums are
            decayed until the last of their positions. None: nothing decays.
    """

    keys: Float[Tensor, "batch heads source features"]
    values: Float[Tensor, "batch heads source width"]
    mask: Bool[Tensor, "batch target source"] | None = None
    before: Float[Tensor, "batch heads features width"] | None = None
    num_before: int = 0
    log_decay: Float[Tensor, "batch heads source"] | None = None

    @property
    def source(self) -> int:
        return self.num_before + self.keys.shape[2]

    @CachedProperty
    def total(self) -> Float[Tensor, "batch heads features width"]:
        """The sum over all positions: the state of decoding, of the same size at every step."""
        return self.sum_before(self.source)

    def sum_before(self, position: int) -> Float[Tensor, "batch heads features width"]:
        """Return the sum over the positions before `position`."""
        end = position - self.num_before
        keys, values = self.keys[:, :, :end], self.values[:, :, :end]
        log_decay = None if self.log_decay is None else self.log_decay[:, :, :end]
        with torch.autocast(keys.device.type, enabled=False):
            here = keys.mT @ values if log_decay is None else decayed_sum(keys, values, log_decay)
        if self.before is None:
            return here
        kept = self.before if log_decay is None else self.before * log_decay.sum(-1).exp()[..., None, None]
        return kept + here

    @CachedProperty
    def chunks(self) -> DecayedChunks:
        """`keys` and `values` in chunks, with the decayed sums before and after each."""
        assert self.log_decay is not None
        return DecayedChunks.cut(self.keys, self.values, self.log_decay, self.before, CHUNK)

    def select(self, rows: Int[Tensor, " rows"]) -> KernelMemory:
        """Return the sentences `rows`, in that order."""
        before = None if self.before is None else self.before.index_select(0, rows)
        mask = None if self.mask is None else self.mask[rows]
        keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        log_decay = None if self.log_decay is None else self.log_decay.index_select(0, rows)
        selected = KernelMemory(keys, values, mask, before, self.num_before, log_decay)
        if "total" in vars(self):  # computed already
            vars(selected)["total"] = self.total.index_select(0, rows)
        return selected

    def branch(self, rows: Int[Tensor, " rows"]) -> KernelMemory:
        """Return the sentences `rows` of a memory that will be appended to: their sums alone."""
        check_one_mask("KernelAttention", self.mask)
        nothing = (self.keys[:, :, :0].index_select(0, rows), self.values[:, :, :0].index_select(0, rows))
        log_decay = None if self.log_decay is None else self.log_decay[:, :, :0].index_select(0, rows)
        return KernelMemory(*nothing, None, self.total.index_select(0, rows), self.source, log_decay)

    def append(self, new: KernelMemory) -> KernelMemory:
        """Append keys and values, for causal self-attention; of those before them the sum alone is kept."""
        check_one_mask("KernelAttention", self.mask, new.mask)
        return KernelMemory(new.keys, new.values, None, self.total, self.source, new.log_decay)


@final
class KernelAttention(LinearAttention):
    """Multi-head attention with weights phi(q) . phi(k) / sum, in O(n). Katharopoulos et al. 2020, eq. 4-6 and 8-12.

    The context is phi(q) S / phi(q) z, where S sums phi(k) v^T and z sums phi(k): over the source once, in causal
    training by chunks, and in decoding step by step. Time is O(n d^2), and a step costs the same at every position.
    Weights, on request, and a mask for each query take all pairs. A row whose weights are all 0 gives zeros.

    With a decay the weight of key j for query i is multiplied by the f_l of the tokens l from j + 1 to i. The papers
    are causal; here a key that follows its query decays by the f_l from i + 1 to j. In attention to another sequence i
    is the query's own position in it, or the last. A token that the mask hides decays nothing.

    Args:
        query_dim, key_dim, value_dim, layer, relative, num_heads, project_values, projection_dropout: as in Attention.
        feature_map, decay: partials that take the sizes their signatures name; without a decay all tokens keep all.
        qkv_bias: whether the projections have a bias.
        backend: "dense" computes weights over all pairs, except over the past of a step: for comparison.

    Raises:
        UserError: for heads that do not divide a width, dropout of an output that is not projected, or a position
            encoding that needs scores.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        value_dim: int,
        layer: int,
        feature_map: partial[Any],
        num_heads: Annotated[int | None, "[1, 1000]"],
        project_values: bool,
        projection_dropout: Annotated[float, "[0, 1)"],
        qkv_bias: bool,
        backend: Literal["auto", "dense"],
        decay: partial[Any] | None = None,
        relative: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        if projection_dropout and not project_values:
            raise UserError(
                f"attention.projection_dropout={projection_dropout} needs a projection of the output, which this layer "
                "does not have; set attention.project_values=true, or leave the option out"
            )
        sizes = head_sizes(query_dim=query_dim, value_dim=value_dim, project_values=project_values, num_heads=num_heads)
        self.num_heads, self.context_dim, head_dim = sizes.num_heads, sizes.joined_width, sizes.score_width
        check_heads("query_dim", query_dim, self.num_heads)  # also where values that are not projected are cut
        self.feature_map = build_part(feature_map, head_dim=head_dim, num_heads=self.num_heads, layer=layer)
        self.decay = None if decay is None else build_part(decay, key_dim=key_dim, num_heads=self.num_heads)
        self.backend = backend
        self.project_query, self.project_key, self.project_values, self.project_output = linear_projections(
            query_dim=query_dim,
            key_dim=key_dim,
            value_dim=value_dim,
            project_values=project_values,
            projection_dropout=projection_dropout,
            qkv_bias=qkv_bias,
        )
        self.relative = None if relative is None else relative(num_heads=self.num_heads, head_dim=head_dim)
        if self.relative is not None and not (self.relative.rotates and self.feature_map.inner_product):
            raise UserError(
                f"position={self.relative.option} changes scores, which {type(self.feature_map).__name__} does not "
                "have; use position=sinusoidal, learned or none, or position=rotary with attention=performer"
            )

    def _prepare(
        self,
        x: Float[Tensor, "batch source key_dim"],
        keys: Float[Tensor, "batch source query_dim"],
        values: Float[Tensor, "batch source context_dim"],
        mask: Tensor | None,
        start: int,
    ) -> KernelMemory:
        """Make a memory of projected keys and values, and of the decay of the tokens `x`."""
        position = torch.arange(start, start + keys.shape[1], device=keys.device)
        check_max_length(self.feature_map, start + keys.shape[1])
        log_decay, factor = (None, None) if self.decay is None else self.decay(x)
        with torch.autocast(keys.device.type, enabled=False):
            features = self.feature_map.key_features(self._heads(keys, position), position)
        if factor is not None:
            features = features * factor.unsqueeze(-1)
        if mask is not None and mask.dim() == 2:
            log_decay = None if log_decay is None else log_decay.masked_fill(~mask[:, None], 0.0)
            features, mask = features.masked_fill(~mask[:, None, :, None], 0.0), None
        values = F.pad(split_heads(at_least_float32(values), self.num_heads), (0, 1), value=1.0)
        return KernelMemory(features, values, mask, log_decay=log_decay)

    def _heads(
        self, projected: Float[Tensor, "batch length query_dim"], position: Int[Tensor, " length"]
    ) -> Float[Tensor, "batch heads length width"]:
        """Cut projected queries or keys into heads, and rotate them if the position encoding does so."""
        x = split_heads(at_least_float32(projected), self.num_heads)
        return x if self.relative is None else self.relative.rotate(x, position)

    def _attend(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: KernelMemory,
        start: int,
        causal: bool,
        need_weights: bool,
        same_position: bool = False,
    ) -> Attended:
        """Attend with projected queries; with `same_position` all are at position `start`."""
        rows = query.shape[1]
        if memory.mask is not None:
            check_rows(memory.mask, rows)
        at_last = (same_position or rows == 1) and (causal or memory.keys.shape[2] == 0)
        if (causal or memory.log_decay is not None) and start < memory.num_before - at_last:
            relation, kept = ("may not see all of", "sum") if causal else ("is one of", "decayed sum")
            raise UserError(
                f"the query at position {start} {relation} the {memory.num_before} positions of which this memory of "
                f"KernelAttention keeps the {kept}; attend from the position after them on"
            )
        end = start + (1 if same_position else rows)
        check_max_length(self.feature_map, end)
        position = torch.arange(start, end, device=query.device).expand(rows)
        weights = None
        with torch.autocast(query.device.type, enabled=False):
            features = self.feature_map.query_features(self._heads(query, position), position)
            if memory.mask is not None or (memory.before is None and (need_weights or self.backend == "dense")):
                weights = all_weights(features, memory, position, causal)
                context = weights @ memory.values[..., :-1]
            else:
                over_keys = sums_over_keys if memory.log_decay is None else decayed_sums_over_keys
                context = divide(over_keys(features, memory, start, causal, same_position))
        context = join_heads(context.to(query.dtype))
        if self.project_output is not None:
            context = self.project_output(context)
        return Attended(context, weights.to(query.dtype) if need_weights and weights is not None else None)


def all_weights(
    query: Float[Tensor, "batch heads target features"],
    memory: KernelMemory,
    position: Int[Tensor, " target"],
    causal: bool,
) -> Float[Tensor, "batch heads target source"]:
    """Return the weights of all pairs, the definition.

    Args:
        position: of the queries.
        causal: a query attends to the keys up to its own position only.
    """
    allowed = None if memory.mask is None else memory.mask[:, None]
    if causal:
        allowed = intersect_masks(
            allowed, torch.arange(memory.source, device=query.device) <= position[:, None].expand(-1, memory.source)
        )
    products = query @ memory.keys.mT
    if memory.log_decay is not None:
        products = products * decay_of_pairs(memory.log_decay, position, memory.mask)
    if allowed is not None:
        products = products.masked_fill(~allowed, 0.0)
    return divide(torch.cat([products, products.sum(-1, keepdim=True)], -1))


def sums_over_keys(
    query: Float[Tensor, "batch heads target features"],
    memory: KernelMemory,
    start: int,
    causal: bool,
    same_position: bool,
) -> Float[Tensor, "batch heads target width"]:
    """Return numerators and denominator of each query: phi(q) times the sum over the keys that it may see."""
    rows = query.shape[2]
    one_position = same_position or rows == 1
    if not causal or (one_position and start + 1 >= memory.source):
        return query @ memory.total
    if one_position:
        return query @ memory.sum_before(start + 1)
    first = start - memory.num_before  # the key at the position of the first query
    keys, values = (x[:, :, first : first + rows] for x in (memory.keys, memory.values))
    if rows > keys.shape[2]:  # queries after the last key
        keys, values = (F.pad(x, (0, 0, 0, rows - keys.shape[2])) for x in (keys, values))
    return causal_sums(query, keys, values, memory.sum_before(start), chunk=CHUNK)


def decayed_sums_over_keys(
    query: Float[Tensor, "batch heads target features"],
    memory: KernelMemory,
    start: int,
    causal: bool,
    same_position: bool,
) -> Float[Tensor, "batch heads target width"]:
    """Return `sums_over_keys` of a memory with a decay; a query after the last key is at the last key."""
    rows = query.shape[2]
    first = start - memory.num_before  # the key at the position of the first query
    if same_position or rows == 1:
        if start + 1 >= memory.source:
            return query @ memory.total
        return query @ memory.sum_before(start + 1) if causal else memory.chunks.sums_at(query, first)
    within = min(rows, memory.keys.shape[2] - first)
    if within <= 0:
        return query @ memory.total
    sums = memory.chunks.sums(query[:, :, :within], first, causal)
    return sums if within == rows else torch.cat([sums, query[:, :, within:] @ memory.total], 2)


def divide(sums: Float[Tensor, "*rows columns"]) -> Float[Tensor, "*rows others"]:
    """Divide all columns by the last one; zeros where that is 0, or so small that gradients would overflow."""
    denominator = sums[..., -1:]
    nothing = denominator <= MIN_DENOMINATOR * torch.finfo(sums.dtype).tiny
    return (sums[..., :-1] / denominator.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)
