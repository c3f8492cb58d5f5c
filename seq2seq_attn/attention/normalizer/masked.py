"""Normalizers under a mask: entmax, softmax with a sink, and the number of keys that a row may attend to."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.normalizer.entmax import Entmax
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.precision import at_least_float32

# Finite, because a row of -inf gives NaN; its square, which entmax15 sums, is finite in float32, too.
HIDDEN_SCORE = -1e15


def masked_entmax(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None, alpha: float
) -> Float[Tensor, "*rows keys"]:
    """Return entmax weights of the last dimension, in the dtype of `scores`; half precision goes through float32.

    Hidden keys have weight 0, and a row that sees nothing is all 0. The fill is a constant and has no gradient.
    """
    if scores.shape[-1] == 0:  # no best score
        return scores
    wide = at_least_float32(scores)
    if allowed is None:
        return Entmax.apply(wide, alpha).to(scores.dtype)
    hidden = ~allowed
    weights = Entmax.apply(wide.masked_fill(hidden, HIDDEN_SCORE), alpha)
    return weights.masked_fill(hidden, 0.0).to(scores.dtype)


def entmax_loss(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    target: Float[Tensor, "*rows keys"],
    alpha: float,
) -> Float[Tensor, "*rows"]:
    """Return the Fenchel-Young loss of entmax, at least 0, and 0 where the weights are the target.

        (p - y) . scores + H(p) - H(y),  H(p) = sum(p - p^alpha) / (alpha (alpha - 1)),

    with the weights p and the target y; its gradient by the scores is p - y. Peters et al. 2019, eq. 11,
    arXiv:1905.05702; for alpha 2 it is the sparsemax loss of Martins and Astudillo 2016, eq. 17, arXiv:1602.02068.
    """
    return fenchel_young_loss(scores, masked_entmax(scores.detach(), allowed, alpha), target, alpha)


def fenchel_young_loss(
    scores: Float[Tensor, "*rows keys"],
    weights: Float[Tensor, "*rows keys"],
    target: Float[Tensor, "*rows keys"],
    alpha: float | Float[Tensor, ""],
) -> Float[Tensor, "*rows"]:
    """Return the loss of `entmax_loss`, given the entmax weights of the scores as constants."""
    entropy = (weights - weights**alpha - target + target**alpha).sum(-1) / (alpha * (alpha - 1))
    return ((weights - target) * scores).sum(-1) + entropy


def masked_log_softmax(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*rows keys"]:
    """Return the log-probabilities; a hidden key has a finite one, which a weight of 0 cancels."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return scores.log_softmax(-1)


def cross_entropy(
    log_probs: Float[Tensor, "*rows keys"], target: Float[Tensor, "*rows keys"]
) -> Float[Tensor, "*rows"]:
    """Return the cross-entropy of each row, in nats."""
    return -(target * log_probs).sum(-1)


def softmax_cross_entropy(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    target: Float[Tensor, "*rows keys"],
) -> Float[Tensor, "*rows"]:
    """Return the cross-entropy of the softmax over the allowed keys (Garg et al. 2019, eq. 5, arXiv:1909.02074)."""
    return cross_entropy(masked_log_softmax(scores, allowed), target)


def masked_sink_softmax(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    sink: Float[Tensor, "*#rows 1"] | Float[Tensor, " 1"],
) -> Float[Tensor, "*rows keys"]:
    """Return the softmax over the allowed keys and one more with the score `sink`, without the weight of that one."""
    wide = at_least_float32(scores)
    column = sink.to(wide.dtype).expand(*wide.shape[:-1], 1)
    allowed = None if allowed is None else F.pad(allowed, (0, 1), value=True)
    return masked_softmax(torch.cat([wide, column], -1), allowed)[..., :-1].to(scores.dtype)


def sink_cross_entropy(
    scores: Float[Tensor, "*rows keys"],
    allowed: Bool[Tensor, "*#rows keys"] | None,
    sink: Float[Tensor, "*#rows 1"] | Float[Tensor, " 1"],
    target: Float[Tensor, "*rows keys"],
) -> Float[Tensor, "*rows"]:
    """Return the cross-entropy of `masked_sink_softmax`: weight on the sink is lost, as the target has none there."""
    column = sink.to(scores.dtype).expand(*scores.shape[:-1], 1)
    allowed = None if allowed is None else F.pad(allowed, (0, 1), value=True)
    return cross_entropy(masked_log_softmax(torch.cat([scores, column], -1), allowed)[..., :-1], target)


def visible_keys(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None
) -> Float[Tensor, "*#rows 1"] | Float[Tensor, ""]:
    """Return the number of keys that each row may attend to, at least 1, in the dtype of `scores`."""
    if allowed is None:
        return scores.new_full((), max(1, scores.shape[-1]))
    return allowed.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)


def hide(weights: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Tensor:
    """Return the weights with exactly 0 where a key is hidden."""
    return weights if allowed is None else weights.masked_fill(~allowed, 0.0)
