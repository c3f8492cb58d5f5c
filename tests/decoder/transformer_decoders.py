"""Small Transformer decoders and an encoded source for tests."""

from __future__ import annotations

from typing import Any

import torch
from nn import torch_transformer as by_torch

from seq2seq_attn.decoder.transformer import TransformerDecoder
from seq2seq_attn.encoder.encoder import Encoded

BATCH, HEADS, DIM, FF_DIM, SOURCE, TARGET, LAYERS = 3, 3, 18, 13, 7, 11, 2
MASK = torch.arange(SOURCE) < torch.tensor([[4], [7], [1]])


def decoder(**changed: Any) -> TransformerDecoder:
    own = {"input_dim": DIM, "key_dim": DIM, "value_dim": DIM, "summary_dim": 5}
    own |= {"dim": DIM, "num_layers": LAYERS, "norm": "pre", "dropout": 0.0}
    own |= dict.fromkeys(("self_attention", "cross_attention"), by_torch.attention_factory(HEADS))
    own |= {"position": by_torch.position_factory("none")}
    own |= {"feed_forward": by_torch.feed_forward_factory(FF_DIM)}
    return TransformerDecoder(**{**own, **changed})


def ready(**changed: Any) -> TransformerDecoder:
    """Return a decoder in evaluation mode, without parameters that are 0 or 1."""
    ours = decoder(**changed).eval()
    by_torch.shaken(ours)
    return ours


def encoded(key_dim: int = DIM, value_dim: int = DIM) -> Encoded:
    keys, values = torch.randn(BATCH, SOURCE, key_dim), torch.randn(BATCH, SOURCE, value_dim)
    return Encoded(keys, values, MASK, torch.randn(BATCH, 5))
