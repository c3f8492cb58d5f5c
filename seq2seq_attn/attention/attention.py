"""Attention: the one place where a score, a pattern and a normalizer meet."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, final

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.build_part import build_part, named_arguments
from seq2seq_attn.attention.heads import check_heads, join_heads, split_heads
from seq2seq_attn.attention.memory import Memory
from seq2seq_attn.attention.places import Places
from seq2seq_attn.tensors.error import UserError


class Attended(NamedTuple):
    """What attention found: the context of each query and, if asked for, the weights before dropout.

    `log_prob` and `entropy` are those of a normalizer that samples, summed over heads, in nats.
    """

    context: Float[Tensor, "batch target context_dim"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None


@final
class Attention(nn.Module):
    """Multi-head attention of three parts.

    Args:
        query_dim, key_dim, value_dim: widths of what comes in.
        layer: number of the layer it serves, from 0; a pattern may depend on it.
        score, pattern, normalizer: the parts, each a partial that takes the sizes its signature names.
        num_heads: None means one head per 64 of `query_dim`, at least one.
        project_values: learn a projection of the values and one of the output (Vaswani et al. 2017), or
            neither (Bahdanau, Luong): the values are then cut into heads as they are.
        dropout: of the weights. projection_dropout: of the projected output.
        qkv_bias: whether the projections have a bias. qk_scale: factor of a scaled score; None: its own.

    Raises:
        UserError: for heads that do not divide a width, or a scale that the score does not take.
    """

    def __init__(
        self, *, query_dim: int, key_dim: int, value_dim: int, layer: int,
        score: partial[Any], pattern: partial[Any], normalizer: partial[Any], num_heads: int | None,
        project_values: bool, dropout: float, projection_dropout: float, qkv_bias: bool, qk_scale: float | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads = num_heads if num_heads is not None else max(1, query_dim // 64)
        check_heads("value_dim", value_dim, self.num_heads)
        if qk_scale is not None and "scale" not in named_arguments(score):
            raise UserError(
                f"{score.func.__name__} takes no attention.qk_scale={qk_scale}; use attention/score=scaled_dot"
            )
        sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": self.num_heads}
        self.score = build_part(score, **sizes, bias=qkv_bias, scale=qk_scale)
        self.pattern = build_part(pattern, **sizes).for_layer(layer)
        self.normalizer = build_part(normalizer, **sizes)
        self.dropout = dropout
        self.project_values = self.project_output = None
        self.context_dim = value_dim
        if project_values:
            check_heads("query_dim", query_dim, self.num_heads)
            self.project_values = nn.Linear(value_dim, query_dim, bias=qkv_bias)
            self.project_output = nn.Sequential(
                nn.Linear(query_dim, query_dim, bias=qkv_bias), nn.Dropout(projection_dropout)
            )
            self.context_dim = query_dim

    def prepare(
        self,
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
    ) -> Memory:
        """Everything about keys and values that no query changes; `values` default to `keys`."""
        values = keys if values is None else values
        if self.project_values is not None:
            values = self.project_values(values)
        return Memory(self.score.prepare_keys(keys), split_heads(values, self.num_heads), mask)

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
            start: place of the first query in its sentence.
            causal: a query at place t sees keys 0..t only.
            need_weights: return the weights; this takes the dense way, whatever the pattern offers.
        """
        prepared = self.score.prepare_query(query)
        context = None
        if not need_weights and self._may_fuse(memory):
            context = self._fused(prepared, memory, start, causal)
        if context is not None:
            return Attended(self._output(context))
        return self._dense(query, prepared, memory, start, causal, need_weights)

    def attend_self(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | None = None,
        *,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """A sequence that attends to itself."""
        return self(x, self.prepare(x, mask=mask), causal=causal, need_weights=need_weights)

    def _may_fuse(self, memory: Memory) -> bool:
        dropping = self.training and self.dropout > 0
        one_mask = memory.mask is None or memory.mask.dim() == 2
        return self.score.inner_product and self.normalizer.is_softmax and one_mask and not dropping

    def _fused(
        self, query: tuple[Tensor, ...], memory: Memory, start: int, causal: bool
    ) -> Float[Tensor, "batch heads target width"] | None:
        target = query[0].shape[2]
        if causal and target == 1 and memory.source == start + 1:
            causal = False  # a step sees the whole cache
        if causal and (start != 0 or target != memory.source):
            return None
        return self.pattern.product(query[0], memory.keys[0], memory.values, memory.mask, causal)

    def _dense(
        self,
        query: Float[Tensor, "batch target query_dim"],
        prepared: tuple[Tensor, ...],
        memory: Memory,
        start: int,
        causal: bool,
        need_weights: bool,
    ) -> Attended:
        batch, target = query.shape[:2]
        places = Places.dense(
            start=start, target=target, source=memory.source, lengths=lambda: memory.lengths, causal=causal,
            device=query.device,
        )  # fmt: skip
        scores = self.score(prepared, memory.keys, places).to(memory.values.dtype)
        scores = scores.expand(batch, *scores.shape[1:])
        weights, log_prob, entropy = self.normalizer(
            scores, self._allowed(query, memory, places, start, causal)
        )
        weights = self._reweigh(weights, query, places)
        context = F.dropout(weights, self.dropout, self.training) @ memory.values
        return Attended(
            self._output(context),
            weights if need_weights else None,
            None if log_prob is None else log_prob.sum(1),
            None if entropy is None else entropy.sum(1),
        )

    def _allowed(
        self, query: Tensor, memory: Memory, places: Places, start: int, causal: bool
    ) -> Bool[Tensor, "#batch #heads #target source"] | None:
        """Mask, causality, pattern and the score's own looks, composed; None: everything may be seen."""
        allowed = memory.visible
        if causal and not (query.shape[1] == 1 and memory.source == start + 1):
            allowed = both(allowed, (places.key <= places.query[:, None])[None, None])
        if not self.pattern.sees_all:
            centre = self.pattern.centre(query, places.query, places.end)
            in_pattern = self.pattern.allowed(centre, places.key)
            allowed = both(allowed, in_pattern[:, None])
        return both(allowed, self.score.visible(places))

    def _reweigh(self, weights: Tensor, query: Tensor, places: Places) -> Tensor:
        if not self.pattern.reweighs:
            return weights
        return self.pattern.reweigh(weights, self.pattern.centre(query, places.query, places.end), places.key)

    def _output(
        self, context: Float[Tensor, "batch heads target width"]
    ) -> Float[Tensor, "batch target dim"]:
        joined = join_heads(context)
        return joined if self.project_output is None else self.project_output(joined)


def both(left: Bool[Tensor, ...] | None, right: Bool[Tensor, ...] | None) -> Bool[Tensor, ...] | None:
    """What two masks both allow, where None allows everything."""
    if left is None:
        return right
    return left if right is None else left & right
