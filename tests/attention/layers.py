"""Layers of every preset, eight heads of two."""

from __future__ import annotations

from typing import Any

import torch
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention import CrossAttention, SelfAttention
from seq2seq_attn.attention.build import no_relative

HEADS, WIDTH = 8, 16
KERNELS = {
    "linear",
    "performer",
    "cosformer",
    "gated_linear",
}  # presets of KernelAttention: no scores, no dropout of weights


def layer(preset: str, *overrides: str, **options: Any) -> Any:
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    return attention_of(preset, f"attention.num_heads={HEADS}", *overrides, **sizes, **options)


def self_layer(preset: str, *overrides: str) -> SelfAttention:
    return SelfAttention(layer(preset, *overrides, relative=no_relative)).eval()


def cross_layer(preset: str) -> CrossAttention:
    return CrossAttention(layer(preset)).eval()


def in_chunks(attention: Any, x: Tensor, lengths: int | list[int]) -> Tensor:
    """The contexts of causal self-attention that goes on, chunk by chunk, from the memory of those before."""
    past, found = None, []
    for chunk in x.split(lengths, 1):
        attended = attention.attend_self(chunk, past=past, causal=True)
        past = attended.memory
        found.append(attended.context)
    return torch.cat(found, 1)


def by_blocks(layer: Any) -> Any:
    """From the shortest sequence on, if there is a pattern that has blocks."""
    if has_blocks(layer):
        layer.attention.pattern.fused_from = layer.attention.pattern.blocks_from = 1
    return layer


def has_blocks(layer: Any) -> bool:
    """Whether `by_blocks` changes anything."""
    pattern = getattr(layer.attention, "pattern", None)
    return pattern is not None and pattern.blocks_from < 10**6
