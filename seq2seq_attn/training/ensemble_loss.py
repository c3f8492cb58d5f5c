"""Teacher forcing of one model, or of several that decide together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seq2seq_attn.batch import Batch
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import log_mean_probability
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.training.loss import CHUNK, Loss


def read_pairs(models: Sequence[EncoderDecoder], batch: Batch, *, need_weights: bool = False) -> list[Decoded]:
    """What each model makes of the given targets."""
    return [model(batch.source, batch.source_mask, batch.target_input, need_weights=need_weights) for model in models]


def mean_loss(
    models: Sequence[EncoderDecoder], decoded: Sequence[Decoded], batch: Batch, smoothing: float = 0.0
) -> Loss:
    """That of `label_smoothed_cross_entropy` for the mean probability of the models; nothing can be learned from it."""
    hidden = [one.hidden[batch.target_mask] for one in decoded]
    target = batch.target_output[batch.target_mask]
    nll, spreads, spread = [], [], torch.zeros((), device=target.device)
    correct = torch.zeros((), dtype=torch.int64, device=target.device)
    for start in range(0, len(target), CHUNK):
        rows = slice(start, start + CHUNK)
        log_probs = log_mean_probability(
            [
                at_least_float32(model.logits(of_model[rows])).log_softmax(-1)
                for model, of_model in zip(models, hidden, strict=True)
            ]
        )
        reference = target[rows, None]
        nll.append(-log_probs.gather(-1, reference)[:, 0])
        spreads.append(-log_probs.mean(-1))
        spread = spread + spreads[-1].sum()
        correct = correct + (log_probs.argmax(-1, keepdim=True) == reference).sum()
    by_token = torch.cat(nll)
    smoothed = (1 - smoothing) * by_token.sum() + smoothing * spread
    loss_by_token = (1 - smoothing) * by_token + smoothing * torch.cat(spreads)
    return Loss(smoothed, by_token.sum(), by_token, loss_by_token, len(target), correct)
