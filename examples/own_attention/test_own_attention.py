"""The attention equals its formula, computed pair by pair, and keeps the laws of attention."""

from __future__ import annotations

from pathlib import Path

import torch

from seq2seq_attn.attention import build_attention, check_attention
from seq2seq_attn.attention.cross_attention import CrossAttention

CONF = Path(__file__).parent / "conf"


def attention_of(*overrides: str) -> CrossAttention:
    """Return cross-attention of one head without further projections."""
    return build_attention(
        "bahdanau", "score=laplace", *overrides, query_dim=6, key_dim=5, num_heads=1, config_dir=CONF
    ).double()


def test_weights_are_a_laplace_kernel_of_the_distance() -> None:
    attention = attention_of("score.length_scale=0.7")
    query, keys = torch.randn(2, 3, 6).double(), torch.randn(2, 7, 5).double()
    weights = attention(query, keys, need_weights=True).weights
    score = attention.attention.score
    for batch in range(2):
        for target in range(3):
            q = score.project_query.weight @ query[batch, target]
            kernel = [torch.exp(-(q - score.project_key.weight @ key).abs().sum() / 0.7) for key in keys[batch]]
            expected = torch.stack(kernel) / sum(kernel)
            torch.testing.assert_close(weights[batch, 0, target], expected)


def test_the_laws_of_attention_hold() -> None:
    check_attention("multihead", "score=laplace", dim=8, num_heads=2, config_dir=CONF)
    check_attention("bahdanau", "score=laplace", query_dim=6, key_dim=5, config_dir=CONF)
