"""What an attention layer asks of a backend, and what a backend returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.mix.mix import Mix
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import Memory, QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import redefines
from seq2seq_attn.position.relative_encoding import RelativeEncoding

# A function of the weights of all pairs, (batch, heads, target, source), and of where a pair is allowed: None,
# everywhere. It returns the weights that the values get.
ChangeWeights = Callable[[Tensor, Tensor | None], Tensor]


@final
class Parts(NamedTuple):
    """The parts of a layer that decide its weights.

    Attributes:
        mix: None: each head has weights of its own.
        relative: the relative position encoding of self-attention; None: there is none.
        dropout: probability of dropping a weight in this call, 0 in evaluation.
        change_weights: what a caller makes of the weights, for the dense backend; None: nothing.
    """

    score: Score
    pattern: Pattern
    normalizer: Normalizer
    mix: Mix | None
    relative: RelativeEncoding | None
    dropout: float
    change_weights: ChangeWeights | None = None

    @property
    def inner_products(self) -> bool:
        """Whether the scores are those of query keys^T alone, and each head has weights of its own."""
        plain = self.relative is None or not (self.relative.biases or self.relative.adds_context)
        hides = redefines(type(self.score), Score.visible)  # some positions, head by head
        return self.score.inner_product and plain and not hides and self.mix is None

    @property
    def fusible(self) -> bool:
        """Whether the context is softmax(query keys^T) values, with at most a sink, which fused kernels compute."""
        softmax = self.normalizer.is_softmax and not self.pattern.reweighs
        return softmax and self.inner_products and self.dropout == 0

    def scores(
        self,
        query: tuple[Tensor, ...],
        keys: tuple[Tensor, ...],
        positions: QueryKeyPositions,
        dtype: torch.dtype,
        history: History | None = None,
    ) -> Float[Tensor, "*batch heads target source"]:
        """Return the scores, plus the bias of the relative position encoding, of all pairs or in blocks."""
        if history is None or history.score is None:
            scores = self.score(query, keys, positions).to(dtype)
        else:
            scores = self.score(query, keys, positions, history.score).to(dtype)
        if self.relative is None or not self.relative.biases:
            return scores
        content = query[0] if self.relative.needs_inner_product else None
        bias = self.relative.bias(content, positions.query, positions.key)
        if content is None and self.mix is not None:  # the same for each set of scores of a head
            bias = torch.cat([bias] * self.mix.score_heads_per_head, -3)
        return scores + bias.to(scores.dtype)

    def normalize(
        self,
        scores: Float[Tensor, "batch score_heads target keys"],
        allowed: Bool[Tensor, "#batch #score_heads #target keys"] | None,
        history: History | None = None,
    ) -> Normalized:
        """Return the weights of the values; the rows are those of all pairs or of blocks.

        Raises:
            UserError: for a normalizer that returns a tensor.
        """
        if history is not None and history.normalizer is not None:
            return self.normalizer(scores, allowed, history.normalizer, history.in_search)
        normalized: Normalized = self.normalizer(scores if self.mix is None else self.mix.before(scores), allowed)
        if isinstance(normalized, Tensor):
            raise UserError(f"{type(self.normalizer).__name__} returns a tensor; return Normalized(weights)")
        if self.mix is None:
            return normalized
        weights, log_prob, entropy = normalized
        weights = self.mix.after(weights)
        if allowed is not None and allowed.shape[1] in (1, weights.shape[1]):
            weights = weights.masked_fill(~allowed, 0.0)
        return Normalized(weights, log_prob, entropy)


@final
class Request(NamedTuple):
    """One call of an attention layer.

    Attributes:
        query: the queries as they came, from which a pattern may predict its centre.
        prepared: the queries as the score prepared them.
        start: position of the first query.
        causal: a query at position t attends to keys 0..t only.
        need_weights: the weights are to be returned.
        same_position: all queries are at position `start`: the hypotheses of a sentence in beam search.
        self_attention: queries and keys are of the same sequence, so that a query's own position is among the keys.
        rows_match_keys: query t and key t are the same token, so where the mask hides a key, its query is padding.
        guide: the links that the weights of one head should agree with; None: there are none.
    """

    query: Float[Tensor, "batch target query_dim"]
    prepared: tuple[Tensor, ...]
    memory: Memory
    start: int
    causal: bool
    need_weights: bool
    same_position: bool = False
    self_attention: bool = False
    rows_match_keys: bool = False
    history: History | None = None
    guide: Guide | None = None

    @property
    def target(self) -> int:
        """Number of target positions."""
        return 1 if self.same_position else self.query.shape[1]

    @property
    def source(self) -> int:
        return self.memory.source

    @property
    def empty(self) -> bool:
        """Whether there is no query or no value."""
        return self.query.numel() == 0 or self.memory.values.numel() == 0

    @property
    def starts_at_zero(self) -> bool:
        """Whether row t is position t."""
        return self.start == 0 and not self.same_position

    @property
    def triangular(self) -> bool:
        """Whether causality hides any key; the query of the newest position attends to the whole cache."""
        return self.causal and not (self.target == 1 and self.source == self.start + 1)

    @property
    def square(self) -> bool:
        """Whether causality allows all pairs, or the lower triangle of a square."""
        return not self.triangular or (self.start == 0 and self.target == self.source)

    def positions(self, window: slice | Tensor | None = None) -> QueryKeyPositions:
        """Return the positions of the queries, and of all keys or those in a window."""
        return QueryKeyPositions.dense(
            start=self.start,
            target=self.query.shape[1],
            source=self.source,
            lengths=lambda: self.memory.lengths,
            causal=self.causal,
            device=self.query.device,
            window=window,
            same_position=self.same_position,
        )


@final
class HeadOutput(NamedTuple):
    """The output of a backend, head by head.

    Attributes:
        weights: before dropout; None: not asked for.
        log_prob, entropy: of a normalizer that samples, in nats.
        alignment_loss: of the guided head; None: the request has no guide.
    """

    context: Float[Tensor, "batch heads target width"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    log_prob: Float[Tensor, "batch score_heads target"] | None = None
    entropy: Float[Tensor, "batch score_heads target"] | None = None
    alignment_loss: Float[Tensor, "batch target"] | None = None


def join_rows(outputs: Sequence[HeadOutput]) -> HeadOutput:
    """Return the outputs of consecutive rows as one; a request with a guide is never cut into rows."""
    return HeadOutput._make(None if x[0] is None else torch.cat(x, 2) for x in zip(*outputs, strict=True))
