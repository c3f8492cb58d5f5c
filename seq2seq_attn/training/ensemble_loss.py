"""Cross-entropy of the mean probability of several models, given the references; nothing can be trained by it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seq2seq_attn.batch import Batch
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import log_mean_probability
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.training.loss import CHUNK, Loss


def ensemble_cross_entropy(
    models: Sequence[EncoderDecoder], batch: Batch, smoothing: float = 0.0, *, need_weights: bool = False
) -> tuple[Loss, Decoded]:
    """Return the loss that `label_smoothed_cross_entropy` has for one model, and what the decoders gave.

    The decoders' output is that of the first, but weights are those of all: `cross/0/1` is slot `cross/0` of model 1.
    """
    decoded = [
        model(batch.source, batch.source_mask, batch.target_input, need_weights=need_weights) for model in models
    ]
    hidden = [one.hidden[batch.target_mask] for one in decoded]
    target = batch.target_output[batch.target_mask]
    nll, uniform = [], []  # of each token, against the reference and against all tokens alike
    correct = torch.zeros((), dtype=torch.int64, device=target.device)
    for start in range(0, len(target), CHUNK):
        rows = slice(start, start + CHUNK)
        log_probs = log_mean_probability(
            [
                at_least_float32(model.logits(model_hidden[rows])).log_softmax(-1)
                for model, model_hidden in zip(models, hidden, strict=True)
            ]
        )
        reference = target[rows, None]
        nll.append(-log_probs.gather(-1, reference)[:, 0])
        uniform.append(-log_probs.mean(-1))
        correct = correct + (log_probs.argmax(-1, keepdim=True) == reference).sum()
    token_nll = torch.cat(nll)
    by_token = (1 - smoothing) * token_nll + smoothing * torch.cat(uniform)
    loss = Loss(by_token.sum(), token_nll.sum(), token_nll, by_token, len(target), correct)
    weights = {
        f"{slot}/{n}": slot_weights for n, one in enumerate(decoded) for slot, slot_weights in one.weights.items()
    }
    return loss, decoded[0]._replace(weights=weights)
