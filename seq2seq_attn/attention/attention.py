"""Multi-head attention made of a score, a pattern, a normalizer, a mix and a gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from seq2seq_attn.attention.backend import blocks, buckets, dense, fused, keys_first, listed, row_tiles, step, table
from seq2seq_attn.attention.backend.request import ChangeWeights, HeadOutput, Parts, Request
from seq2seq_attn.attention.compatibility import (
    check_latents,
    check_parts,
    check_parts_for_history,
    check_projections,
    check_relative,
    check_self_pattern,
    check_self_width,
)
from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.head_sizes import HeadSizes, head_sizes
from seq2seq_attn.attention.history import History, check_no_history, reads_history
from seq2seq_attn.attention.key_mask import check_rows, key_mask
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.normalizer.normalizer import Normalizer
from seq2seq_attn.attention.packed_projection import MIN_PACKED_ROWS, PackedProjection, pack, pack_source
from seq2seq_attn.attention.score.latent import LatentScore
from seq2seq_attn.attention.score.score import Score, check_prepared, check_taken
from seq2seq_attn.attention.state import Attended, Memory, by_sentence, flatten_hypotheses, join_steps, query_positions
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part, redefines
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.heads import join_heads, project_heads, split_heads
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.named_tuple import with_fields
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.transforms import inside_transform
from seq2seq_attn.position.relative_encoding import RelativeEncoding

# The first that serves a request is taken.
BACKENDS = (
    step.attend,
    listed.attend,
    buckets.attend,
    keys_first.attend,
    fused.attend,
    blocks.attend,
    table.attend,
    row_tiles.attend,
    dense.attend,
)


@final
class Attention(AttentionLayer):
    """Multi-head attention of a score, a pattern and a normalizer. Vaswani et al. 2017, 3.2, arXiv:1706.03762.

    Heads of queries may share heads of keys and values: all of them one (multi-query attention, Shazeer 2019,
    arXiv:1911.02150), or each group its own (grouped-query attention, Ainslie et al. 2023, arXiv:2305.13245). With
    `LatentScore`, keys and values of all heads are projections of one latent of each token (multi-head latent
    attention, DeepSeek-AI 2024, arXiv:2405.04434), and a memory holds the latents.

    Args:
        query_dim, key_dim, value_dim: widths of the inputs.
        layer: number of the layer in its encoder or decoder, from 0; a pattern may depend on it.
        relative: builds the relative position encoding of self-attention; None: cross-attention.
        score, pattern, normalizer, mix, gate: the parts, each a partial that takes the sizes its signature names.
            mix: None: each head has weights of its own. gate: None: the context passes as it is.
        num_heads: None: as many heads as divide what is cut into heads (`query_dim` and, unless they are projected,
            the values) and leave each head at least 64 of `query_dim`; at least one.
        num_kv_heads: number of heads of keys and values, which divides `num_heads`; None: `num_heads`.
        head_dim: width of a head of queries, keys and projected values; None: query_dim / num_heads.
        project_values: learn a projection of the values (Vaswani et al. 2017), or not (Bahdanau, Luong): the values
            are then cut into heads as they are.
        project_output: learn a projection of the joined heads to `query_dim`; None: as `project_values`.
        dropout: probability of dropping a weight. projection_dropout: of dropping a number of the projected output.
        qkv_bias: whether the projections of queries, keys and values have a bias. output_bias: whether that of the
            output has one; None: as `qkv_bias`.
        qk_scale: factor of a scaled score; None: the score's default.
        backend: "auto" takes the fastest backend that serves a request. "dense" computes every request over all pairs
            by the score's own `prepare_query`, `prepare_keys` and `forward`: for debugging and for comparison.

    Attributes:
        change_weights: what reads or replaces the weights before they average the values, as the explorer does; every
            request then takes the dense backend. None: nothing does.

    Raises:
        UserError: for heads that do not divide a width, or options that do not go together.
    """

    change_weights: ChangeWeights | None = None

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
        num_heads: Annotated[int | None, "[1, 1000]"],
        project_values: bool,
        dropout: Annotated[float, "[0, 1)"],
        projection_dropout: Annotated[float, "[0, 1)"],
        qkv_bias: bool,
        qk_scale: Annotated[float | None, "(0, inf)"],
        backend: Literal["auto", "dense"],
        relative: Callable[..., Any] | None = None,
        mix: partial[Any] | None = None,
        gate: partial[Any] | None = None,
        num_kv_heads: Annotated[int | None, "[1, 1000]"] = None,
        head_dim: Annotated[int | None, "[1, 16384]"] = None,
        project_output: bool | None = None,
        output_bias: bool | None = None,
    ) -> None:
        super().__init__()
        sizes = head_sizes(
            query_dim=query_dim,
            value_dim=value_dim,
            project_values=project_values,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            mix=mix,
        )
        self.num_heads, self.num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        check_taken([score], scale=qk_scale, num_kv_heads=num_kv_heads, head_dim=head_dim)
        projects_output = project_values if project_output is None else project_output
        check_projections(
            score,
            project_values=project_values,
            project_output=projects_output,
            projection_dropout=projection_dropout,
            qkv_bias=qkv_bias,
            output_bias=output_bias,
        )
        score_heads = sizes.score_heads_per_head
        score_sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": self.num_heads * score_heads}
        self.score = build_part(
            score,
            **score_sizes,
            num_kv_heads=None if num_kv_heads is None else num_kv_heads * score_heads,
            head_dim=None if head_dim is None else sizes.score_width,
            bias=qkv_bias,
            scale=qk_scale,
        )
        self.pattern = build_part(pattern, **score_sizes, head_dim=sizes.score_width, layer=layer).for_layer(layer)
        if relative is not None:
            check_self_pattern(self.pattern)
        self.normalizer = build_part(normalizer, **score_sizes)
        if self.latent is not None:
            check_latents(self.pattern, key_dim=key_dim, value_dim=value_dim, project_values=project_values)
        check_parts(self.score, self.pattern, self.normalizer, mix)
        self.mix = self.gate = None
        if mix is not None:
            widths = {"head_dim": sizes.score_width, "value_head_dim": sizes.value_width}
            self.mix = build_part(mix, num_heads=self.num_heads, **widths, layer=layer)
        if gate is not None:
            self.gate = build_part(gate, query_dim=query_dim, context_dim=sizes.joined_width, num_heads=self.num_heads)
        self.dropout, self.backend = dropout, backend
        self.project_values = self.project_output = None
        if project_values:
            self.project_values = self._value_projection(value_dim, sizes, bias=qkv_bias)
        if projects_output:
            projection = Linear(sizes.joined_width, query_dim, bias=qkv_bias if output_bias is None else output_bias)
            self.project_output = nn.Sequential(projection, Dropout(projection_dropout))
        self.context_dim = sizes.joined_width if self.project_output is None else query_dim
        self.relative, self.is_self_attention = None, relative is not None
        if relative is not None:
            check_self_width(query_dim=query_dim, context_dim=self.context_dim)
            self.relative = self._build_relative(relative, sizes)
        self.reads_history = reads_history(self.score, self.normalizer)
        if relative is not None:
            check_no_history(self)
        if self.reads_history:
            check_parts_for_history(self.pattern, self.normalizer, self.mix)

    def _value_projection(self, value_dim: int, sizes: HeadSizes, *, bias: bool) -> Linear:
        """Return the projection of values or, without a bias, that of latents, which weights may have averaged."""
        width = self.num_kv_heads * sizes.value_width
        if self.latent is None:
            return Linear(value_dim, width, bias=bias)
        return Linear(self.latent.kv_rank, width, bias=False)

    def _build_relative(self, relative: Callable[..., Any], sizes: HeadSizes) -> RelativeEncoding | None:
        """Build the relative position encoding of the heads, or of the rotated part of latents."""
        latent = self.latent
        width = sizes.score_width if latent is None else latent.rotary_dim
        encoding: RelativeEncoding | None = relative(num_heads=self.num_heads, head_dim=width)
        if encoding is not None:
            check_relative(encoding, self.score, self.normalizer, sizes)
            if latent is not None and encoding.rotates:
                latent.add_rotary_part()
        return encoding

    @property
    def latent(self) -> LatentScore | None:
        """The score if it prepares latents, from which the values are made, too."""
        return self.score if isinstance(self.score, LatentScore) else None

    @property
    def reads_query(self) -> bool:
        """Whether the content of a query changes its context; False where that depends on positions alone."""
        return self.score.reads_query or self.pattern.reads_query or self.gate is not None

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of a query that sees a key are a distribution."""
        kept = self.mix is None or self.mix.sums_to_one
        return self.normalizer.sums_to_one and kept and not self.pattern.reweighs

    def prepare(
        self,
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
        start: int = 0,
        *,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch target"] | None = None,
    ) -> Memory:
        """Compute all that depends on keys and values only; `values` default to `keys`.

        Args:
            mask: True where a key may be attended to, for the sentence or for each query; None: everywhere.
            start: position of the first key.
            valid_length: instead of a mask, how many of the first keys may be attended to (see `key_mask`).
        """
        visible = key_mask(mask, valid_length, keys, values)
        if self.latent is not None:
            return self._prepare_latents(self.latent, keys, values, visible, start)
        packed, one_input = None, values is None or values is keys
        if one_input and self.backend != "dense" and keys.shape[:2].numel() >= MIN_PACKED_ROWS:
            packed = pack_source(self.score, self.project_values)
        if packed is not None:
            projected_keys, values = packed.project(keys)
            prepared = self.score.split_keys(projected_keys)
        else:
            prepared = check_prepared(self.score, self.score.prepare_keys(keys))
            values = keys if values is None else values
            values = values if self.project_values is None else self.project_values(values)
        values = split_heads(values, self.num_kv_heads)
        prepared = self._summed(self._rotate(prepared, start), visible)
        return Memory(prepared, values, visible, running_sums=self.score.running_sums)

    def _summed(self, keys: tuple[Tensor, ...], mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return prepared keys with the running sums of the score, to which no key adds that the mask hides."""
        count = self.score.running_sums
        if count == 0:
            return keys
        terms = keys[-count:]
        if mask is not None:
            hidden = ~(mask if mask.dim() == 2 else mask.any(1))[:, None, :, None]
            terms = tuple(one.masked_fill(hidden, 0.0) for one in terms)
        return (*keys[:-count], *(one.cumsum(2) for one in terms))

    def _prepare_latents(
        self, latent: LatentScore, keys: Tensor, values: Tensor | None, mask: Tensor | None, start: int
    ) -> Memory:
        """Prepare one latent of each token, or one of its key and one of its value where these are not the same."""
        prepared = self._rotate(latent.prepare_keys(keys), start)
        if values is None or values is keys:
            return Memory(prepared, prepared[0], mask)
        return Memory(prepared, latent.latents(values).unsqueeze(1), mask)

    def forward(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: Memory,
        *,
        start: int = 0,
        causal: bool = False,
        need_weights: bool = False,
        history: History | None = None,
        guide: Guide | None = None,
    ) -> Attended:
        """Return the context of each query.

        Args:
            query: as many rows as the memory has sentences; or several times as many rows of one query each, as in
                beam search: the hypotheses of a sentence are neighbours at one position and share its memory.
            start: position of the first query in its sentence.
            causal: a query at position t attends to keys 0..t only.
            need_weights: return the weights, too; they are computed over all pairs, whatever the pattern offers.
            history: of a layer that reads the weights of the steps before, which goes step by step, the output of the
                last step; None: these are the first steps.
            guide: return the loss of these links, too; it is computed over all pairs.
        """
        if self.reads_history and query.shape[1] > 1:
            return self._step_by_step(query, memory, start, causal, need_weights, history, guide)
        query, hypotheses = by_sentence(query, len(memory.values))
        prepared = self._rotate(self._prepare_query(query), start, same_position=hypotheses)
        prepared = self._with_position(prepared, memory, start, same_position=hypotheses)
        request = Request(
            query,
            prepared,
            memory,
            start,
            causal,
            need_weights,
            same_position=hypotheses,
            self_attention=self.is_self_attention or causal,
            guide=guide,
        )
        if self.reads_history:
            attended = self._attend_with(history or self._first_history(memory), request)
        else:
            attended = self._attend(request)
        return flatten_hypotheses(attended) if hypotheses else attended

    def check_guide(self, head: int) -> None:
        if not 0 <= head < self.num_heads:
            raise UserError(
                f"guided_alignment.head={head} is no head of a layer with {self.num_heads}; give one from 0 to "
                f"{self.num_heads - 1}"
            )
        has_loss = redefines(type(self.normalizer), Normalizer.alignment_loss)
        parts = (
            (self.normalizer, not has_loss),
            (self.mix, self.mix is not None),
            (self.pattern, self.pattern.reweighs),
        )
        refused = [part for part, is_refused in parts if is_refused]
        if refused:
            raise UserError(
                "guided_alignment needs weights that are probabilities with a gradient for every key, and those of "
                f"{type(refused[0]).__name__} are not; use attention=multihead or attention=bahdanau, or "
                "guided_alignment.links=null"
            )

    def first_history(self, memory: Memory) -> History | None:
        """Return the history before the first step; None for a layer that reads none."""
        return self._first_history(memory) if self.reads_history else None

    def attend_self(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | Bool[Tensor, "batch length length"] | None = None,
        *,
        past: Memory | None = None,
        packed: PackedProjection | None = None,
        causal: bool = False,
        need_weights: bool = False,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch length"] | None = None,
    ) -> Attended:
        """Attend from a sequence to itself and, one step or chunk at a time, to the `past` before it.

        Args:
            mask, valid_length: of the keys of `x`, as in `prepare`.
            packed: the value of `self.packed()`, if it is at hand, as in decoding, where it serves every step.
        """
        if self.reads_history:
            check_no_history(self)
        mask = key_mask(mask, valid_length, x)
        start = 0 if past is None else past.source
        prepared, memory = self._prepare_self(x, mask, start, packed)
        if past is not None:
            memory = past.append(memory)
        prepared = self._with_position(prepared, memory, start)
        attended = self._attend(
            Request(x, prepared, memory, start, causal, need_weights, self_attention=True, rows_match_keys=past is None)
        )
        return with_fields(attended, memory=memory)

    def _step_by_step(
        self,
        query: Tensor,
        memory: Memory,
        start: int,
        causal: bool,
        need_weights: bool,
        history: History | None,
        guide: Guide | None,
    ) -> Attended:
        """Attend from one query after another, each with the history of those before it."""
        steps: list[Attended] = []
        for row, one in enumerate(query.split(1, 1)):
            given, links = memory.for_queries(row, row + 1), None if guide is None else guide.at(row)
            asked = {"start": start + row, "causal": causal, "need_weights": need_weights}
            steps.append(self(one, given, **asked, history=history, guide=links))
            history = steps[-1].history
        return join_steps(steps)

    def _first_history(self, memory: Memory) -> History:
        zeros = at_least_float32(memory.values).new_zeros(len(memory.values), self.num_heads, 1, memory.source)
        return History.first(self.score, self.normalizer, zeros)

    def _attend_with(self, history: History, request: Request) -> Attended:
        """Attend in one step with a history, by the dense backend, whose weights the next history is made of."""
        if request.same_position:
            history = history.by_sentence(len(request.query))
        rows = request.query.shape[1]  # none, or the hypotheses of a sentence
        attended = self._attend(request._replace(history=history.first_rows(rows), need_weights=True))
        assert attended.weights is not None
        after = history.next(self.score, self.normalizer, attended.weights) if rows else history
        return with_fields(attended, history=after, weights=attended.weights if request.need_weights else None)

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
            return self._rotate(self._prepare_query(x), start), self.prepare(x, mask=mask, start=start)
        query, keys, values = packed.project(x)
        memory = Memory(self._rotate(self.score.split_keys(keys), start), split_heads(values, self.num_kv_heads), mask)
        return self._rotate(self.score.split_query(query), start), memory

    def _prepare_query(self, query: Tensor) -> tuple[Tensor, ...]:
        """Return prepared queries; of latents those of each head, unless the dense backend takes the score's own."""
        latent = None if self.backend == "dense" else self.latent
        if latent is not None:
            return latent.query_heads(query)
        return check_prepared(self.score, self.score.prepare_query(query))

    def _rotate(self, prepared: tuple[Tensor, ...], start: int, *, same_position: bool = False) -> tuple[Tensor, ...]:
        """Rotate prepared queries or keys by their positions, if the relative position encoding does so."""
        if self.relative is None or not self.relative.rotates:
            return prepared
        (x,) = prepared
        position = query_positions(start, x.shape[2], same_position=same_position, device=x.device)
        if self.latent is None:
            return (self.relative.rotate(x, position),)
        content, rotated = x.split([x.shape[-1] - self.latent.rotary_dim, self.latent.rotary_dim], -1)
        return (torch.cat([content, self.relative.rotate(rotated, position)], -1),)

    def _with_position(
        self, prepared: tuple[Tensor, ...], memory: Memory, start: int, *, same_position: bool = False
    ) -> tuple[Tensor, ...]:
        """Return prepared queries with what the score reads from the keys at their positions."""
        if memory.source == 0 or not redefines(type(self.score), Score.query_at):
            return prepared
        device = memory.values.device
        position = query_positions(start, prepared[0].shape[2], same_position=same_position, device=device)
        last = (memory.lengths - 1).clamp(min=0)[:, None]
        return self.score.query_at(prepared, memory.keys, torch.minimum(position[None], last))

    def _attend(self, request: Request) -> Attended:
        """Return the context and what else a request asks for."""
        latent = self.latent
        output = self._head_output(request) if latent is None else self._attend_to_latents(latent, request)
        return self._combine_heads(request.query, output)

    def _attend_to_latents(self, latent: LatentScore, request: Request) -> HeadOutput:
        """Attend to keys and values made of the latents, or to the latents themselves if that takes less work."""
        assert self.project_values is not None
        memory, rank = request.memory, latent.kv_rank
        absorbed = self.backend == "dense"
        if not absorbed and latent.expanding_is_cheaper(request.query.shape[1], memory.source):
            values = split_heads(self.project_values(memory.values[:, 0, :, :rank]), self.num_heads)
            expanded = replace(memory, keys=latent.expand_keys(*memory.keys), values=values, buffer=None)
            return self._head_output(request._replace(memory=expanded))
        if not absorbed:
            request = request._replace(prepared=latent.absorb(*request.prepared))
        output = self._head_output(request)
        by_head = self.project_values.weight.unflatten(0, (self.num_heads, -1))
        return output._replace(context=project_heads(output.context[..., :rank], by_head))

    def _head_output(self, request: Request) -> HeadOutput:
        """Answer a request by the first backend that serves it."""
        mask = request.memory.mask
        if mask is not None and mask.dim() == 3:
            check_rows(mask, request.query.shape[1])
        dropout = self.dropout if self.training else 0.0
        change = self.change_weights
        parts = Parts(self.score, self.pattern, self.normalizer, self.mix, self.relative, dropout, change)
        # The fast backends handle neither empty tensors nor vmap, and return neither weights nor the loss of links.
        asked = request.need_weights or request.guide is not None or change is not None
        if self.backend == "dense" or asked or request.empty or inside_transform():
            return dense.attend(parts, request)
        for attend in BACKENDS:
            output = attend(parts, request)
            if output is not None:
                return output
        raise AssertionError("the dense backend serves every request")

    def _combine_heads(self, query: Float[Tensor, "batch target query_dim"], output: HeadOutput) -> Attended:
        """Join the heads, gate and project the output, and sum the log-probabilities of the heads."""
        context, weights, log_prob, entropy, alignment_loss = output
        context = join_heads(context if self.mix is None else self.mix.context(context))
        if self.gate is not None:
            context = self.gate(query, context)
        if self.project_output is not None:
            context = self.project_output(context) if self.training else self.project_output[0](context)
        return Attended(
            context,
            weights,
            None if log_prob is None else log_prob.sum(1),
            None if entropy is None else entropy.sum(1),
            sums_to_one=self.sums_to_one,
            alignment_loss=alignment_loss,
        )
