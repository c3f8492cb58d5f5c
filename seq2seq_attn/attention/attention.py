"""Attention: the module in which a score, a pattern and a normalizer meet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, final

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.backend import blocks, dense, fused, step
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.build_part import build_part, named_arguments
from seq2seq_attn.attention.key_mask import check_rows, key_mask
from seq2seq_attn.attention.packed_projection import PackedProjection, pack, pack_source
from seq2seq_attn.attention.state import Attended, Memory, flatten_hypotheses
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.func_transforms import inside_func_transform
from seq2seq_attn.nn.heads import check_heads, join_heads, most_heads, split_heads

MIN_PACKED_ROWS = 64  # from here on one product of packed projections is as fast as one stored matrix
BACKENDS = (step.attend, fused.attend, blocks.attend, dense.attend)  # the first that serves a request is taken


@final
class Attention(nn.Module):
    """Multi-head attention of a score, a pattern and a normalizer. Vaswani et al. 2017, 3.2, arXiv:1706.03762.

    Args:
        query_dim, key_dim, value_dim: widths of the inputs.
        layer: number of the layer in its encoder or decoder, from 0; a pattern may depend on it.
        relative: builds the relative position encoding of self-attention; None: cross-attention.
        score, pattern, normalizer: the parts, each a partial that takes the sizes its signature names.
        num_heads: None: as many heads as divide what is cut into heads (`query_dim` and, unless they are projected,
            the values) and leave each head at least 64 of `query_dim`; at least one.
        project_values: learn a projection of the values and one of the output (Vaswani et al. 2017), or
            neither (Bahdanau, Luong): the values are then cut into heads as they are.
        dropout: probability of dropping a weight. projection_dropout: of dropping a number of the projected output.
        qkv_bias: whether the projections have a bias. qk_scale: factor of a scaled score; None: the score's default.
        backend: "auto" takes the fastest backend that serves a request. "dense" computes every request over all pairs
            by the score's own `prepare_query`, `prepare_keys` and `forward`: for debugging and for comparison.

    Raises:
        UserError: for heads that do not divide a width, or options that do not go together.
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
        backend: Literal["auto", "dense"],
        relative: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        self.context_dim = query_dim if project_values else value_dim
        self.num_heads = most_heads(query_dim, self.context_dim) if num_heads is None else num_heads
        check_heads("query_dim" if project_values else "value_dim", self.context_dim, self.num_heads)
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
        self.dropout, self.backend = dropout, backend
        self.project_values = self.project_output = None
        if project_values:
            self.project_values = nn.Linear(value_dim, query_dim, bias=qkv_bias)
            self.project_output = nn.Sequential(
                nn.Linear(query_dim, query_dim, bias=qkv_bias), nn.Dropout(projection_dropout)
            )
        self.relative = None
        if relative is not None:
            self.relative = relative(num_heads=self.num_heads, head_dim=query_dim // self.num_heads)
        if self.relative is not None and self.relative.needs_inner_product and not self.score.rotatable:
            raise UserError(
                f"position={self.relative.option} acts on an inner product of queries and keys, which "
                f"{type(self.score).__name__} is not; use attention/score=scaled_dot, or position=alibi or "
                "position=sinusoidal"
            )

    @property
    def reads_query(self) -> bool:
        """Whether the content of a query changes the weights; False where they depend on positions alone."""
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
        """Compute all that depends on keys and values only; `values` default to `keys`.

        Args:
            mask: True where a key may be attended to, for the sentence or for each query; None: everywhere.
            start: position of the first key.
            valid_length: instead of a mask, how many of the first keys may be attended to (see `key_mask`).
        """
        visible = key_mask(mask, valid_length, keys)
        packed, one_input = None, values is None or values is keys
        if one_input and self.backend != "dense" and keys.shape[:2].numel() >= MIN_PACKED_ROWS:
            packed = pack_source(self.score, self.project_values)
        if packed is not None:
            projected_keys, values = F.linear(keys, *packed).chunk(2, -1)
            prepared = self.score.split_keys(projected_keys)
        else:
            values, prepared = keys if values is None else values, self.score.prepare_keys(keys)
            values = values if self.project_values is None else self.project_values(values)
        return Memory(self._rotate(prepared, start), split_heads(values, self.num_heads), visible)

    def forward(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: Memory,
        *,
        start: int = 0,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """Return the context of each query.

        Args:
            query: as many rows as the memory has sentences; or several times as many rows of one query each, as in
                beam search: the hypotheses of a sentence are neighbours at one position and share its memory.
            start: position of the first query in its sentence.
            causal: a query at position t attends to keys 0..t only.
            need_weights: return the weights, too; they are computed over all pairs, whatever the pattern offers.
        """
        sentences = len(memory.values)
        hypotheses = len(query) != sentences
        if hypotheses:
            query = query.reshape(sentences, -1, query.shape[2])
        prepared = self._rotate(self.score.prepare_query(query), start)
        attended = self._attend(Request(query, prepared, memory, start, causal, need_weights, same_position=hypotheses))
        return flatten_hypotheses(attended) if hypotheses else attended

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
        """Attend from a sequence to itself and, one step or chunk at a time, to the `past` before it.

        Args:
            mask, valid_length: of the keys of `x`, as in `prepare`.
            packed: the value of `self.packed()`, if it is at hand, as in decoding, where it serves every step.
        """
        mask = key_mask(mask, valid_length, x)
        start = 0 if past is None else past.source
        prepared, memory = self._prepare_self(x, mask, start, packed)
        if past is not None:
            memory = past.append(memory)
        attended = self._attend(Request(x, prepared, memory, start, causal, need_weights, rows_match_keys=past is None))
        return attended._replace(memory=memory)

    def packed(self) -> PackedProjection | None:
        """Return one matrix for queries, keys and values of one input; None where they are not all linear."""
        return None if self.backend == "dense" else pack(self.score, self.project_values)

    def _prepare_self(
        self, x: Tensor, mask: Tensor | None, start: int, packed: PackedProjection | None
    ) -> tuple[tuple[Tensor, ...], Memory]:
        """Prepare queries, keys and values of one input, by one product where there are enough rows."""
        if packed is None and x.shape[:2].numel() >= MIN_PACKED_ROWS:
            packed = self.packed()
        if packed is None:
            return self._rotate(self.score.prepare_query(x), start), self.prepare(x, mask=mask, start=start)
        query, keys, values = F.linear(x, *packed).chunk(3, -1)
        memory = Memory(self._rotate(self.score.split_keys(keys), start), split_heads(values, self.num_heads), mask)
        return self._rotate(self.score.split_query(query), start), memory

    def _rotate(self, prepared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        """Rotate prepared queries or keys by their positions, if the relative position encoding does so."""
        if self.relative is None or not self.relative.rotates:
            return prepared
        (x,) = prepared
        return (self.relative.rotate(x, torch.arange(start, start + x.shape[2], device=x.device)),)

    def _attend(self, request: Request) -> Attended:
        """Answer a request by the first backend that serves it."""
        mask = request.memory.mask
        if mask is not None and mask.dim() == 3:
            check_rows(mask, request.query.shape[1])
        dropout = self.dropout if self.training else 0.0
        parts = Parts(self.score, self.pattern, self.normalizer, self.relative, dropout)
        # The fast backends handle neither empty tensors nor vmap, and return no weights.
        if self.backend == "dense" or request.need_weights or request.empty or inside_func_transform():
            return self._combine_heads(dense.attend(parts, request))
        for attend in BACKENDS:
            output = attend(parts, request)
            if output is not None:
                return self._combine_heads(output)
        raise AssertionError("the dense backend serves every request")

    def _combine_heads(self, output: HeadOutput) -> Attended:
        """Join the heads, project the output, and sum the log-probabilities of the heads."""
        context, weights, log_prob, entropy = output
        context = join_heads(context)
        if self.project_output is not None:
            context = self.project_output(context) if self.training else self.project_output[0](context)
        return Attended(
            context,
            weights,
            None if log_prob is None else log_prob.sum(1),
            None if entropy is None else entropy.sum(1),
            sums_to_one=self.normalizer.sums_to_one,
        )
