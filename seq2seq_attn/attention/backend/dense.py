"""Attention over all pairs of a query and a key: the definition, which serves every request."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import dropout
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.masked import intersect_masks


def attend(parts: Parts, request: Request) -> HeadOutput:
    """Score every key for every query and hide what mask, causality, pattern or score do not allow.

    Raises:
        UserError: for scores without a dimension of the batch or the heads, which would be spread over the others.
    """
    memory, positions = request.memory, request.positions()
    scores = parts.scores(request.prepared, memory.keys, positions, memory.values.dtype, request.history)
    if scores.dim() != 4:
        raise UserError(
            f"{type(parts.score).__name__} returns scores of shape {tuple(scores.shape)}, and must return them as "
            "(batch or 1, heads, target, source)"
        )
    centre = None
    if not (parts.pattern.sees_all or parts.pattern.selects):
        centre = parts.pattern.centre(request.query, positions.query, positions.end)
    allowed = allowed_pairs(parts, request, positions, centre)
    return weigh(parts, request, scores, allowed, memory.values, positions, centre)


def allowed_pairs(
    parts: Parts, request: Request, positions: QueryKeyPositions, centre: Tensor | None
) -> Bool[Tensor, "#batch #heads #target #source"] | None:
    """Return where all of mask, causality, pattern and score allow a pair; None: everywhere."""
    allowed = request.memory.visible
    if request.causal and request.source > request.start + 1:
        allowed = intersect_masks(allowed, (positions.key <= positions.query[:, None])[None, None])
    if parts.pattern.selects:
        query, keys = request.prepared[0].detach(), request.memory.keys[0].detach()
        if keys.shape[1] != query.shape[1]:  # several heads of queries share one of keys
            keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], 1)
        query_position = positions.query if request.self_attention else None
        allowed = intersect_masks(allowed, parts.pattern.select(query, keys, allowed, query_position))
    elif centre is not None:
        allowed = intersect_masks(allowed, parts.pattern.checked(centre, positions.key)[:, None])
    return intersect_masks(allowed, parts.score.visible(positions))


def weigh(
    parts: Parts,
    request: Request,
    scores: Float[Tensor, "#batch score_heads target source"],
    allowed: Bool[Tensor, "#batch #score_heads #target #source"] | None,
    values: Float[Tensor, "batch kv_heads source width"],
    positions: QueryKeyPositions,
    centre: Tensor | None = None,
) -> HeadOutput:
    """Normalize the scores and average the values."""
    scores = scores.expand(len(request.query), *scores.shape[1:])
    weights, log_prob, entropy = parts.normalize(scores, allowed, request.history)
    guide = request.guide
    alignment_loss = None if guide is None else guide.loss(parts.normalizer, scores, allowed, weights)
    if centre is not None and parts.pattern.reweighs:
        weights = parts.pattern.reweigh(weights, centre, positions.key)
    if parts.change_weights is not None:
        weights = parts.change_weights(weights, allowed)
    dropped = dropout(weights, parts.dropout)
    context = matmul_groups(dropped, values)
    if parts.relative is not None and parts.relative.adds_context:
        context = context + parts.relative.context(dropped, positions.query, positions.key)
    return HeadOutput(context, weights if request.need_weights else None, log_prob, entropy, alignment_loss)
