"""Masked, label-smoothed cross-entropy, in nats."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.tensors.precision import at_least_float32


class Loss(NamedTuple):
    """Sums over the real target pieces of a batch.

    Attributes:
        smoothed: against (1 - s) of the reference piece and s spread over the vocabulary (Szegedy et al.
            2016, section 7, arXiv:1512.00567); what training minimises.
        nll: the plain negative log-likelihood; exp of its mean is the perplexity.
        tokens: how many pieces.
    """

    smoothed: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: int


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "tokens vocabulary"], target: Int[Tensor, "tokens"], smoothing: float
) -> Loss:
    """Loss of the pieces given; padding has been left out before."""
    log_probs = at_least_float32(logits).log_softmax(-1)
    nll = F.nll_loss(log_probs, target, reduction="sum")
    if not smoothing:
        return Loss(nll, nll, len(target))
    spread = -log_probs.mean(-1).sum()
    return Loss((1 - smoothing) * nll + smoothing * spread, nll, len(target))
