"""Attention: the one position where a score, a pattern and a normalizer meet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.backend.blocks import BlockedScores
from seq2seq_attn.attention.backend.kernel.masked_product import masked_product
from seq2seq_attn.attention.build_part import build_part, named_arguments
from seq2seq_attn.attention.key_mask import check_rows, key_mask
from seq2seq_attn.attention.packed_projection import PackedProjection, join, join_source
from seq2seq_attn.attention.relative import check_relative
from seq2seq_attn.attention.state import Attended, Memory, QueryKeyPositions, flatten_hypotheses
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.func_transforms import inside_func_transform
from seq2seq_attn.nn.heads import check_heads, join_heads, most_heads, split_heads
from seq2seq_attn.nn.masked import intersect_masks

FUSED_ROWS = 64  # from here on one product of joined projections is as fast as one stored matrix


@final
class Attention(nn.Module):
    """Multi-head attention of three parts.

    Args:
        query_dim, key_dim, value_dim: widths of what comes in.
        layer: number of the layer it serves, from 0; a pattern may depend on it.
        relative: makes the part that tells this layer of relative positions, for self-attention only.
        score, pattern, normalizer: the parts, each a partial that takes the sizes its signature names.
        num_heads: None: the most that divide what is cut into heads, `query_dim` and, where they are not projected,
            the values, and leave each head 64 of `query_dim` or more; at least one.
        project_values: learn a projection of the values and one of the output (Vaswani et al. 2017), or
            neither (Bahdanau, Luong): the values are then cut into heads as they are.
        dropout: of the weights. projection_dropout: of the projected output.
        qkv_bias: whether the projections have a bias. qk_scale: factor of a scaled score; None: its own.

    Raises:
        UserError: for heads that do not divide a width, or a scale that the score does not take.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        value_dim: int,
        layer: int,
        score: partial[Any],
        pattern: partial[Any],
        normalizer: partial[Any],
        num_heads: int | None,
        project_values: bool,
        dropout: float,
        projection_dropout: float,
        qkv_bias: bool,
        qk_scale: float | None,
        relative: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        width_of_values = query_dim if project_values else value_dim
        self.num_heads = most_heads(query_dim, width_of_values) if num_heads is None else num_heads
        check_heads("query_dim" if project_values else "value_dim", width_of_values, self.num_heads)
        if qk_scale is not None and "scale" not in named_arguments(score):
            raise UserError(
                f"{score.func.__name__} takes no attention.qk_scale={qk_scale}; use attention/score=scaled_dot"
            )
        sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": self.num_heads}
        self.score = build_part(score, **sizes, bias=qkv_bias, scale=qk_scale)
        self.pattern = build_part(pattern, **sizes).for_layer(layer)
        if relative is not None and self.pattern.length_ratio != 1:
            raise UserError(
                f"attention.pattern.length_ratio={self.pattern.length_ratio} is for cross-attention, where two lengths "
                "differ; leave it at 1.0 where a sentence attends to itself"
            )
        self.normalizer = build_part(normalizer, **sizes)
        self.dropout = dropout
        self.project_values = self.project_output = None
        self.context_dim = value_dim
        if project_values:
            self.project_values = nn.Linear(value_dim, query_dim, bias=qkv_bias)
            self.project_output = nn.Sequential(
                nn.Linear(query_dim, query_dim, bias=qkv_bias), nn.Dropout(projection_dropout)
            )
            self.context_dim = query_dim
        self.relative = None
        if relative is not None:
            self.relative = relative(num_heads=self.num_heads, head_dim=query_dim // self.num_heads)
            check_relative(self.relative, self.score)

    @property
    def reads_query(self) -> bool:
        """Whether what a query holds changes anything: False where scores and pattern look at positions alone."""
        return self.score.reads_query or self.pattern.reads_query

    def prepare(
        self,
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
        start: int = 0,
        *,
        valid_length: Integer[Tensor, "batch"] | Integer[Tensor, "batch target"] | None = None,
    ) -> Memory:
        """Everything about keys and values that no query changes; `values` default to `keys`.

        Args:
            mask: True where a key may be attended to, for the sentence or for each query; None: everywhere.
            start: position of the first key.
            valid_length: instead of a mask, how many of the first keys may be attended to (see `key_mask`).
        """
        one = (values is None or values is keys) and keys.shape[:2].numel() >= FUSED_ROWS
        packed = join_source(self.score, self.project_values) if one else None
        if packed is not None:
            of_keys, values = F.linear(keys, *packed).chunk(2, -1)
            prepared = self.score.split_keys(of_keys)
        else:
            values, prepared = keys if values is None else values, self.score.prepare_keys(keys)
            values = values if self.project_values is None else self.project_values(values)
        visible = key_mask(mask, valid_length, keys)
        return Memory(self._rotated(prepared, start), split_heads(values, self.num_heads), visible)

    def forward(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: Memory,
        *,
        start: int = 0,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """Context of each query.

        Args:
            query: of as many rows as the memory has sentences; or, one query each, of several times as many, as in
                beam search: the hypotheses of a sentence stand together, at one position, and share its memory.
            start: position of the first query in its sentence.
            causal: a query at position t sees keys 0..t only.
            need_weights: return the weights; this takes the dense way, whatever the pattern offers.
        """
        sentences = len(memory.values)
        several = len(query) != sentences
        if several:
            query = query.reshape(sentences, -1, query.shape[2])
        prepared = self._rotated(self.score.prepare_query(query), start)
        attended = self._attend(query, prepared, memory, start, causal, need_weights, same_position=several)
        return flatten_hypotheses(attended) if several else attended

    def attend_self(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | Bool[Tensor, "batch length length"] | None = None,
        *,
        past: Memory | None = None,
        packed: PackedProjection | None = None,
        causal: bool = False,
        need_weights: bool = False,
        valid_length: Integer[Tensor, "batch"] | Integer[Tensor, "batch length"] | None = None,
    ) -> Attended:
        """A sequence that attends to itself and, one step or chunk at a time, to the `past` that stands before it.

        Args:
            mask, valid_length: of the keys of `x`, as in `prepare`.
            joined: what `self.joined()` gives, if it is at hand, as in decoding, where it serves every step.
        """
        mask = key_mask(mask, valid_length, x)
        start = 0 if past is None else past.source
        query, memory = self._prepare_self(x, mask, start, packed)
        if past is not None:
            memory = past.append(memory)
        found = self._attend(x, query, memory, start, causal, need_weights, rows_match_keys=past is None)
        return found._replace(memory=memory)

    def packed(self) -> PackedProjection | None:
        """One matrix for the query, keys and values of one input; None where there are no three of one kind."""
        return join(self.score, self.project_values)

    def _prepare_self(
        self, x: Tensor, mask: Tensor | None, start: int, packed: PackedProjection | None
    ) -> tuple[tuple[Tensor, ...], Memory]:
        """Query, keys and values of one input: one product where its rows outweigh joining the matrices."""
        if packed is None and x.shape[:2].numel() >= FUSED_ROWS:
            packed = self.packed()
        if packed is None:
            return self._rotated(self.score.prepare_query(x), start), self.prepare(x, mask=mask, start=start)
        query, keys, values = F.linear(x, *packed).chunk(3, -1)
        memory = Memory(self._rotated(self.score.split_keys(keys), start), split_heads(values, self.num_heads), mask)
        return self._rotated(self.score.split_query(query), start), memory

    def _rotated(self, prepared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        """Queries or keys of an inner product, turned by their positions."""
        if self.relative is None or not self.relative.rotates:
            return prepared
        (x,) = prepared
        return (self.relative.rotate(x, torch.arange(start, start + x.shape[2], device=x.device)),)

    def _attend(
        self,
        query: Tensor,
        prepared: tuple[Tensor, ...],
        memory: Memory,
        start: int,
        causal: bool,
        need_weights: bool,
        rows_match_keys: bool = False,
        same_position: bool = False,
    ) -> Attended:
        """By the first way that serves: the keys of one position, a fused kernel, a pattern's blocks, all pairs."""
        target, source = 1 if same_position else query.shape[1], memory.source
        if memory.mask is not None and memory.mask.dim() == 3:
            check_rows(memory.mask, query.shape[1])
        # The fast ways know neither empty blocks nor vmap.
        nothing = query.numel() == 0 or memory.values.numel() == 0
        if need_weights or nothing or inside_func_transform():
            return self._dense(query, prepared, memory, start, causal, need_weights, same_position)
        window = self.pattern.window(start, source, causal) if target == 1 else None
        if window is not None:
            return self._step(query, prepared, memory, start, causal, window)
        whole_cache = target == 1 and source == start + 1
        square = not causal or whole_cache or (start == 0 and target == source)
        rows_are_positions = start == 0 and not same_position
        if square and (rows_are_positions or self.pattern.sees_all) and memory.one_mask:
            triangle = causal and not whole_cache
            if self._may_fuse(memory):
                context = self.pattern.fused_attention(
                    prepared[0], memory.keys[0], memory.values, memory.mask, triangle, rows_match_keys
                )
                if context is not None:
                    return Attended(self._output(context))
            if source >= self.pattern.parts_from:
                return self._in_parts(prepared, memory, target, triangle)
        return self._dense(query, prepared, memory, start, causal, need_weights, same_position)

    def _may_fuse(self, memory: Memory) -> bool:
        dropping = self.training and self.dropout > 0
        told = self.relative is not None and (self.relative.biases or self.relative.adds_context)
        softmax = self.score.inner_product and self.normalizer.is_softmax and not self.pattern.reweighs
        return softmax and memory.one_mask and not dropping and not told

    def _step(
        self,
        query: Tensor,
        prepared: tuple[Tensor, ...],
        memory: Memory,
        start: int,
        causal: bool,
        window: slice | Tensor,
    ) -> Attended:
        """Queries at one position, which read only the keys of its window."""
        read = memory.at(window)
        if self._may_fuse(memory):
            return Attended(self._output(masked_product(prepared[0], read.keys[0], read.values, read.visible)))
        positions = QueryKeyPositions.dense(
            start=start,
            target=query.shape[1],
            source=memory.source,
            lengths=lambda: memory.lengths,
            causal=causal,
            device=query.device,
            window=window,
            same_position=True,
        )
        scores = self._scores(read.values.dtype, prepared, read.keys, positions)
        return self._weighed(
            query, scores, intersect_masks(read.visible, self.score.visible(positions)), read, positions
        )

    def _in_parts(self, prepared: tuple[Tensor, ...], memory: Memory, target: int, causal: bool) -> Attended:
        """All queries, in the blocks of the pattern."""
        parts = BlockedScores(
            self.pattern.parts(target, memory.source, causal),
            target,
            memory,
            causal=causal,
            in_order=not self.normalizer.is_softmax,
        )
        hidden = not self.score.inner_product
        of = partial(self._scores, memory.values.dtype)
        scores, allowed = parts.scores(prepared, of, self.score.visible, hidden=hidden)
        scores = scores.expand(len(memory.values), *scores.shape[1:])
        weights, log_prob, entropy = self.normalizer(scores, allowed)
        kept = F.dropout(weights, self.dropout, self.training)
        added = self.relative.context if self.relative is not None and self.relative.adds_context else None
        context = parts.context(kept, added)
        return self._attended(context, None, log_prob, entropy)

    def _dense(
        self,
        query: Tensor,
        prepared: tuple[Tensor, ...],
        memory: Memory,
        start: int,
        causal: bool,
        need_weights: bool,
        same_position: bool,
    ) -> Attended:
        """All queries and all keys, from what the pattern allows."""
        positions = QueryKeyPositions.dense(
            start=start,
            target=query.shape[1],
            source=memory.source,
            lengths=lambda: memory.lengths,
            causal=causal,
            device=query.device,
            same_position=same_position,
        )
        scores = self._scores(memory.values.dtype, prepared, memory.keys, positions)
        centre = None if self.pattern.sees_all else self.pattern.centre(query, positions.query, positions.end)
        allowed = self._allowed(memory, positions, start, causal, centre)
        return self._weighed(query, scores, allowed, memory, positions, centre, need_weights)

    def _weighed(
        self,
        query: Tensor,
        scores: Tensor,
        allowed: Tensor | None,
        memory: Memory,
        positions: QueryKeyPositions,
        centre: Tensor | None = None,
        need_weights: bool = False,
    ) -> Attended:
        scores = scores.expand(len(query), *scores.shape[1:])
        weights, log_prob, entropy = self.normalizer(scores, allowed)
        if centre is not None and self.pattern.reweighs:
            weights = self.pattern.reweigh(weights, centre, positions.key)
        kept = F.dropout(weights, self.dropout, self.training)
        context = kept @ memory.values
        if self.relative is not None and self.relative.adds_context:
            context = context + self.relative.context(kept, positions.query, positions.key)
        return self._attended(context, weights if need_weights else None, log_prob, entropy)

    def _scores(
        self, dtype: torch.dtype, prepared: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        """Scores with what the relative position adds, of all pairs or in blocks."""
        scores = self.score(prepared, keys, positions).to(dtype)
        if self.relative is None or not self.relative.biases:
            return scores
        first = prepared[0] if self.relative.needs_inner_product else None
        return scores + self.relative.bias(first, positions.query, positions.key).to(scores.dtype)

    def _allowed(
        self, memory: Memory, positions: QueryKeyPositions, start: int, causal: bool, centre: Tensor | None
    ) -> Bool[Tensor, "#batch #heads #target #source"] | None:
        """Mask, causality, pattern and the score's own looks, composed; None: everything may be seen."""
        allowed = memory.visible
        if causal and memory.source > start + 1:  # or else a step sees the whole cache
            allowed = intersect_masks(allowed, (positions.key <= positions.query[:, None])[None, None])
        if centre is not None:
            allowed = intersect_masks(allowed, self.pattern.allowed(centre, positions.key)[:, None])
        return intersect_masks(allowed, self.score.visible(positions))

    def _attended(
        self, context: Tensor, weights: Tensor | None, log_prob: Tensor | None, entropy: Tensor | None
    ) -> Attended:
        return Attended(
            self._output(context),
            weights,
            None if log_prob is None else log_prob.sum(1),
            None if entropy is None else entropy.sum(1),
        )

    def _output(self, context: Float[Tensor, "batch heads target width"]) -> Float[Tensor, "batch target dim"]:
        packed = join_heads(context)
        if self.project_output is None:
            return packed
        return self.project_output(packed) if self.training else self.project_output[0](packed)
