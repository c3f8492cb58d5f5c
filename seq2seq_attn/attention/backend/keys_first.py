"""Attention without a softmax: Q (K^T V) / n, the product of keys and values first, which is linear in n.

Shen et al. 2018, section 3.2, arXiv:1812.01243; when causal, by the sums of `causal_sums`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.causal_sums import causal_sums
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.precision import at_least_float32


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where the weights are no inner products alone, or all pairs take fewer multiplications."""
    memory = request.memory
    if not (parts.normalizer.is_identity and parts.inner_products and parts.pattern.sees_all) or parts.dropout > 0:
        return None
    if not (request.starts_at_zero and request.square and memory.one_mask):
        return None
    query, keys, values = (at_least_float32(x) for x in (request.prepared[0], memory.keys[0], memory.values))
    target, source, width = request.target, request.source, query.shape[3]
    if target * source < (2 if request.triangular else 1) * width * (target + source):  # measured on one CPU core
        return None
    with torch.autocast(query.device.type, enabled=False):  # sums over all keys would lose digits
        context = product(query, keys, values, memory.mask, request.triangular)
    return HeadOutput(context.to(memory.values.dtype))


def product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    causal: bool,
) -> Float[Tensor, "batch heads target value_width"]:
    """Return the values, weighted by query keys^T over the number of visible keys."""
    visible = torch.ones(1, keys.shape[2], dtype=torch.bool, device=keys.device) if mask is None else mask
    if mask is not None:
        keys = keys.masked_fill(~mask[:, None, :, None], 0.0)
    if not causal:
        count = visible.sum(-1).clamp(min=1)[:, None, None, None]
        return matmul_groups(query, keys.mT @ values) / count
    shared = query.shape[1] // keys.shape[1]
    if shared > 1:
        keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
    return causal_sums(query, keys, values) / visible.cumsum(-1).clamp(min=1)[:, None, :, None]
