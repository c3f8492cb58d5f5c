"""Layers of every preset, eight heads of two, whose configuration is composed once."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from seq2seq_attn.attention import CrossAttention, SelfAttention
from seq2seq_attn.attention.build import compose_factory, no_relative

HEADS, WIDTH = 8, 16
SIZES = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH, "layer": 0}


@cache
def factory(preset: str) -> partial[Any]:
    return compose_factory(preset, f"num_heads={HEADS}")


def self_layer(preset: str) -> SelfAttention:
    return SelfAttention(factory(preset)(**SIZES, relative=no_relative)).eval()


def cross_layer(preset: str) -> CrossAttention:
    return CrossAttention(factory(preset)(**SIZES)).eval()


def by_blocks(layer: Any) -> Any:
    """From the shortest sequence on, if the pattern has blocks."""
    pattern = layer.attention.pattern
    if pattern.blocks_from < 10**6:
        pattern.fused_from = pattern.blocks_from = 1
    return layer
