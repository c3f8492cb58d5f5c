"""Log-probabilities of the tokens of given translations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import log_mean_probability
from seq2seq_attn.nn.precision import at_least_float32

ROWS = 256  # tokens whose logits fit the cache


@torch.inference_mode()
def token_log_probs(models: Sequence[EncoderDecoder], batch: Batch) -> Float64[Tensor, "batch target"]:
    """Return the log-probability of each target token given the source and the tokens before it, in nats; 0 on padding.

    The end token is one of them. Of several models it is the log of their mean probability.
    """
    mask = batch.target_mask
    hidden = [model(batch.source, batch.source_mask, batch.target_input).hidden[mask].split(ROWS) for model in models]
    written = batch.target_output[mask].split(ROWS)
    found = []
    for tokens, *rows in zip(written, *hidden, strict=True):
        logits = [model.logits(states) for model, states in zip(models, rows, strict=True)]
        log_probs = log_mean_probability([at_least_float32(one).log_softmax(-1) for one in logits])
        found.append(log_probs.gather(-1, tokens[:, None])[:, 0].double())
    by_token = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    by_token[mask] = torch.cat(found)
    return by_token
