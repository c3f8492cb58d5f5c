"""Label-smoothed cross-entropy of an output layer and its gradients, chunk by chunk, in nats."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.nn.differentiable import differentiable_once
from seq2seq_attn.nn.linear import add_weight_gradient, linear
from seq2seq_attn.nn.precision import at_least_float32

CHUNK = 256  # rows whose logits fit the cache; the whole matrix would be moved to memory and back four times


class Loss(NamedTuple):
    """Sums over the real target tokens of a batch.

    Attributes:
        smoothed: against (1 - s) of the reference token and s spread over the vocabulary (Szegedy et al.
            2016, section 7, arXiv:1512.00567); what training minimises.
        nll: the plain negative log-likelihood; exp of its mean is the perplexity. It has no gradient.
        token_nll: what `nll` is the sum of.
        loss_by_token: the loss of each token, which is the reward of hard attention, without a gradient. It sums to
            `smoothed`, except with R-Drop: there the divergence of a token counts in full in both readings, as the
            draws of either change it.
        tokens: how many tokens.
        correct: how many of them the model ranks first; None unless asked for.
    """

    smoothed: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    token_nll: Float[Tensor, " tokens"]
    loss_by_token: Float[Tensor, " tokens"]
    tokens: int
    correct: Int[Tensor, ""] | None = None


def label_smoothed_cross_entropy(
    hidden: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"],
    target: Int[Tensor, " tokens"],
    smoothing: float,
    *,
    count_correct: bool = False,
) -> Loss:
    """Return the loss of p = softmax(W h + b) at the given tokens, among which there is no padding.

    Of a token y it is (1 - s) (-log p(y)) + s mean over v of (-log p(v)), with the smoothing s. Szegedy et al. 2016,
    section 7, arXiv:1512.00567.
    """
    if not torch.is_grad_enabled():  # the forward pass does not see it, and would compute gradients in vain
        hidden, weight, bias = hidden.detach(), weight.detach(), bias.detach()
    smoothed, nll, by_token, correct = ChunkedCrossEntropy.apply(hidden, weight, bias, target, smoothing, count_correct)
    return Loss(smoothed, nll.sum(), nll, by_token, len(target), correct)


class GradientTakenForward(torch.autograd.Function):
    """A loss of an output layer whose forward pass saves its gradients by hidden states, weight and bias."""

    @staticmethod
    @differentiable_once  # to it, the saved gradients would be constants
    def backward(ctx: Any, grad_smoothed: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = (grad * grad_smoothed.to(grad.dtype) for grad in ctx.saved_tensors)
        return hidden, weight, bias, None, None, None


@final
class ChunkedCrossEntropy(GradientTakenForward):
    """The exact loss; the gradient is computed in the forward pass, while a chunk's probabilities are in memory."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, count_correct: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        nll = torch.empty(len(target), dtype=wide, device=hidden.device)
        spread_by_token = torch.empty_like(nll)
        spread = torch.zeros((), dtype=wide, device=hidden.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device) if count_correct else None
        wanted = any(ctx.needs_input_grad)
        grads = empty_gradients(hidden, weight, bias) if wanted else []
        with torch.autocast(hidden.device.type, enabled=False):
            narrow, narrow_bias = weight.to(hidden.dtype), bias.to(hidden.dtype)
            for start in range(0, len(target), CHUNK):
                rows = slice(start, start + CHUNK)
                logits = at_least_float32(chunk_product(hidden[rows], narrow, narrow_bias))
                log_probs = torch.log_softmax(logits, -1, out=logits)
                reference = target[rows, None]
                nll[rows] = -log_probs.gather(-1, reference)[:, 0]
                means = log_probs.mean(-1)
                spread, spread_by_token[rows] = spread - means.sum(), -means
                if correct is not None:
                    correct += (log_probs.argmax(-1, keepdim=True) == reference).sum()
                if wanted:
                    # d smoothed / d logits = p - (1 - s) [reference] - s / vocabulary
                    log_probs.exp_().sub_(smoothing / weight.shape[0])
                    log_probs.scatter_add_(-1, reference, torch.full_like(means[:, None], smoothing - 1))
                    accumulate(grads, rows, log_probs.to(hidden.dtype), hidden[rows], narrow)
                del logits, log_probs  # or those of two chunks would be in memory at once
        ctx.save_for_backward(*(grad.to(x.dtype) for grad, x in zip(grads, (hidden, weight, bias), strict=False)))
        smoothed = (1 - smoothing) * nll.sum() + smoothing * spread
        by_token = (1 - smoothing) * nll + smoothing * spread_by_token
        ctx.mark_non_differentiable(nll, by_token)
        return smoothed, nll, by_token, correct


def empty_gradients(hidden: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """Return tensors for the gradients of the hidden states, the weight and the bias, to which chunks are added.

    Those of weight and bias are sums over all rows: zeros at first, and at least float32, or late chunks would be lost.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    return [torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide), torch.zeros_like(bias, dtype=wide)]


def accumulate(grads: list[Tensor], rows: slice, delta: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Write a chunk's rows of the hidden states' gradient, and add its share to those of the weight and the bias.

    Args:
        grads: as `empty_gradients` returns them.
        delta: gradient of the chunk's logits.
        hidden: the chunk's hidden states.
    """
    hidden_grad, weight_grad, bias_grad = grads
    hidden_grad[rows] = chunk_product(delta, weight.t(), None)
    add_weight_gradient(weight_grad, hidden, delta)
    bias_grad += delta.sum(0)


def chunk_product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b; of a shorter last chunk not by oneDNN, which would compile a kernel for its number of rows."""
    if len(rows) == CHUNK:
        return linear(rows, weight, bias)
    return rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
