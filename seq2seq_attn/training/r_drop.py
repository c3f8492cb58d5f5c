"""R-Drop: two passes over a batch, with different dropout, should agree. Liang et al. 2021, eq. 4, arXiv:2106.14448."""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.training.loss import CHUNK, GradientTakenForward, Loss, accumulate, empty_gradients


def twice(batch: Batch) -> Batch:
    """Return all sentences, then all again: one pass reads each with two dropout masks."""
    return batch.apply(lambda tensor: torch.cat([tensor] * 2))


def r_drop_cross_entropy(
    hidden: Float[Tensor, "tokens_twice dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"],
    target: Int[Tensor, " tokens_twice"],
    smoothing: float,
    alpha: float,
) -> Loss:
    """Return the loss of a batch that was read twice: its first half is one reading, its second half the other.

    `smoothed` is, summed over the tokens, that of both readings plus alpha / 2 times the sum of KL(p, q) and
    KL(q, p), with p and q their distributions at a token: the paper's loss, and its alpha, 5 for translation. As
    `tokens` counts both readings, a mean is half of the paper's loss: nats a token, with alpha / 4 of that sum.

    A step takes twice the time and memory of one reading; the divergence adds little, and no more than a chunk of the
    logits is in memory at once.
    """
    smoothed, nll, by_token = ChunkedRDrop.apply(hidden, weight, bias, target, smoothing, alpha)
    return Loss(smoothed, nll.sum(), nll, by_token, len(target))


@final
class ChunkedRDrop(GradientTakenForward):
    """The exact loss; its gradient, through both distributions, is computed in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, alpha: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        nll = torch.empty(len(target), dtype=wide, device=hidden.device)
        rest_by_token = torch.empty_like(nll)
        rest = torch.zeros((), dtype=wide, device=hidden.device)
        grads = empty_gradients(hidden, weight, bias)
        pairs = len(target) // 2
        with torch.autocast(hidden.device.type, enabled=False):
            narrow, narrow_bias = weight.to(hidden.dtype), bias.to(hidden.dtype)
            for start in range(0, pairs, CHUNK // 2):
                first = slice(start, min(start + CHUNK // 2, pairs))
                second = slice(first.start + pairs, first.stop + pairs)
                log_probs = []
                for rows in (first, second):
                    logits = torch.addmm(narrow_bias, hidden[rows], narrow.t())
                    log_probs.append(at_least_float32(logits).log_softmax(-1))
                    nll[rows] = -log_probs[-1].gather(-1, target[rows, None])[:, 0]
                    means = log_probs[-1].mean(-1)
                    rest, rest_by_token[rows] = rest - smoothing * means.sum(), -smoothing * means
                divergences, deltas = symmetric_divergence(*log_probs)
                rest = rest + alpha / 2 * divergences.sum()
                for rows in (first, second):  # the draws of each reading change it
                    rest_by_token[rows] += alpha / 2 * divergences
                for rows, log_prob, delta in zip((first, second), log_probs, deltas, strict=True):
                    # of the smoothed loss: p - (1 - s) [reference] - s / vocabulary
                    delta = delta.mul_(alpha / 2).add_(log_prob.exp_()).sub_(smoothing / weight.shape[0])
                    reference = target[rows, None]
                    delta.scatter_add_(-1, reference, torch.full_like(delta[:, :1], smoothing - 1))
                    accumulate(grads, rows, delta.to(hidden.dtype), hidden[rows], narrow)
        ctx.save_for_backward(*(grad.to(x.dtype) for grad, x in zip(grads, (hidden, weight, bias), strict=True)))
        by_token = (1 - smoothing) * nll + rest_by_token
        ctx.mark_non_differentiable(nll, by_token)
        return (1 - smoothing) * nll.sum() + rest, nll, by_token


def symmetric_divergence(
    log_p: Float[Tensor, "rows vocabulary"], log_q: Float[Tensor, "rows vocabulary"]
) -> tuple[Float[Tensor, " rows"], list[Float[Tensor, "rows vocabulary"]]]:
    """Return KL(p, q) + KL(q, p) of each row, in nats, and its gradients by the logits of p and of q."""
    p, q, ratio = log_p.exp(), log_q.exp(), log_p - log_q
    forward, backward = (p * ratio).sum(-1, keepdim=True), -(q * ratio).sum(-1, keepdim=True)
    # d KL(p, q) / d logits of p = p (log p - log q - KL(p, q)), by those of q it is q - p
    gradients = [p * (ratio - forward) + p - q, q * (-ratio - backward) + q - p]
    return (forward + backward).squeeze(-1), gradients
