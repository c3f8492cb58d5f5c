"""Layers of every preset, eight heads of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention import CrossAttention, SelfAttention
from seq2seq_attn.attention import attention as attention_module
from seq2seq_attn.attention.build import no_relative

HEADS, WIDTH = 8, 16
KERNELS = {"linear", "performer", "cosformer", "gated_linear"}  # presets of KernelAttention
LINEAR = KERNELS | {"delta", "gated_delta"}  # presets without scores: no dropout of weights


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
    """From the shortest sequence on, if there is a pattern that has blocks or buckets or lists keys."""
    if has_blocks(layer):
        layer.attention.pattern.fused_from = layer.attention.pattern.blocks_from = 1
    pattern = getattr(layer.attention, "pattern", None)
    for name in ("listed_from", "buckets_from"):
        if pattern is not None and getattr(pattern, name) < 10**6:
            setattr(pattern, name, 1)
    return layer


def has_blocks(layer: Any) -> bool:
    """Whether the pattern has blocks."""
    pattern = getattr(layer.attention, "pattern", None)
    return pattern is not None and pattern.blocks_from < 10**6


def served_by(backend: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the sources of the requests that a backend will serve."""
    lengths: list[int] = []

    def count(parts: Any, request: Any) -> Any:
        output = backend(parts, request)
        if output is not None:
            lengths.append(request.source)
        return output

    backends = [count if one is backend else one for one in attention_module.BACKENDS]
    monkeypatch.setattr(attention_module, "BACKENDS", backends)
    return lengths


def check_equal(found: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Compare contexts and their gradients."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(x, inputs, upstream, allow_unused=True) for x in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
