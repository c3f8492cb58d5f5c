"""Mixes, gates and shared heads against code that others wrote: x-transformers, and DiffLlama of transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq_attn.attention.build import build_attention

DIM, HEADS, B, N = 24, 4, 3, 11
MASK = torch.arange(N) < torch.tensor([[11], [6], [1]])
pytestmark = pytest.mark.usefixtures("double")


def copied(layer: Any, theirs: Any) -> Any:
    """Our layer with their projections; their query heads are interleaved over the heads of keys."""
    attention = layer.attention
    groups, size = attention.num_heads // attention.num_kv_heads, DIM // HEADS
    rows = torch.arange(HEADS * size).view(groups, -1, size).transpose(0, 1).flatten()
    attention.score.project_query.weight.data = theirs.to_q.weight.data[rows]
    attention.score.project_key.weight.data = theirs.to_k.weight.data
    attention.project_values.weight.data = theirs.to_v.weight.data
    if attention.project_output is not None:
        attention.project_output[0].weight.data = theirs.to_out.weight.data[:, rows]
    return layer


OPTIONS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "multi_query": ("multi_query", [], {"one_kv_head": True}),
    "grouped_query": ("grouped_query", [], {"kv_heads": 2}),
    "talking_heads": ("talking_heads", [], {"pre_talking_heads": True, "post_talking_heads": True}),
    "gated": ("gated", [], {"gate_values": True}),
    "gated_per_head": ("gated", ["gate.per_head=true"], {"gate_values": True, "gate_values_headwise": True}),
    "attention_on_attention": ("attention_on_attention", [], {"on_attn": True}),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", OPTIONS)
def test_x_transformers_gives_the_same_output_and_gradients(case: str, causal: bool) -> None:
    others = pytest.importorskip("x_transformers.x_transformers")
    preset, overrides, options = OPTIONS[case]
    theirs = others.Attention(DIM, dim_head=DIM // HEADS, heads=HEADS, causal=causal, **options).double()
    layer = copied(build_attention(preset, *overrides, dim=DIM, num_heads=HEADS), theirs)
    attention = layer.attention
    if preset == "talking_heads":  # theirs adds the mixed scores to the scores
        before, after = theirs.attend.pre_softmax_talking_heads, theirs.attend.post_softmax_talking_heads
        for conv in (before, after):
            torch.nn.init.normal_(conv.weight)
        attention.mix.score_matrix.data = torch.eye(HEADS) + before.weight.data[:, :, 0, 0].T
        attention.mix.weight_matrix.data = after.weight.data[:, :, 0, 0].T.clone()
    if preset == "gated":
        gate = linear_of(theirs.to_v_gate)
        attention.gate.project.weight.data = gate.weight.data
        if gate.bias is not None:
            gate.bias.data.zero_()
    if preset == "attention_on_attention":  # theirs reads the context alone
        attention.gate.project.weight.data.zero_()
        attention.gate.project.bias.data.zero_()
        attention.gate.project.weight.data[:, :DIM] = theirs.to_out[0].weight.data
    x = torch.randn(B, N, DIM, requires_grad=True)
    expected = theirs(x, mask=MASK)
    expected = expected[0] if isinstance(expected, tuple) else expected
    check_same(layer(x, MASK, causal=causal).context, expected, x)


def linear_of(module: Any) -> torch.nn.Linear:
    (linear,) = (part for part in module.modules() if isinstance(part, torch.nn.Linear))
    return linear


@pytest.mark.parametrize("kv_heads", [HEADS, HEADS // 2])
@pytest.mark.parametrize("layer_number", [0, 3])
def test_diffllama_gives_the_same_output_and_gradients(layer_number: int, kv_heads: int) -> None:
    diffllama = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    from transformers.models.diffllama.configuration_diffllama import DiffLlamaConfig

    size = DIM // HEADS  # of a score head; theirs counts these
    config = DiffLlamaConfig(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=kv_heads, rms_norm_eps=1e-5
    )
    config._attn_implementation = "eager"
    theirs = diffllama.DiffLlamaAttention(config, layer_idx=layer_number).double()
    overrides = [] if kv_heads == HEADS else [f"num_kv_heads={kv_heads // 2}"]
    layer = build_attention("differential", *overrides, dim=DIM, num_heads=HEADS // 2, layer=layer_number)
    attention = layer.attention
    attention.score.project_query.weight.data = theirs.q_proj.weight.data
    attention.score.project_key.weight.data = theirs.k_proj.weight.data
    # A head of their values is one of the first half of the heads beside one of the second half.
    rows = torch.arange(kv_heads * size).view(2, -1, size).transpose(0, 1).flatten()
    attention.project_values.weight.data = theirs.v_proj.weight.data[rows]
    attention.project_output[0].weight.data = theirs.o_proj.weight.data
    attention.mix.lambda_query.data = torch.stack([theirs.lambda_q1, theirs.lambda_q2]).detach()
    attention.mix.lambda_key.data = torch.stack([theirs.lambda_k1, theirs.lambda_k2]).detach()
    x = torch.randn(B, N, DIM, requires_grad=True)
    unrotated = (torch.ones(1, N, size), torch.zeros(1, N, size))
    causal = torch.full((N, N), -math.inf).triu(1)[None, None]
    expected, _ = theirs(x, unrotated, attention_mask=causal)
    check_same(layer(x, causal=True).context, expected, x)


def check_same(found: Tensor, expected: Tensor, x: Tensor) -> None:
    rows = MASK if len(found) == B else slice(None)
    torch.testing.assert_close(found[rows], expected[rows], rtol=0, atol=1e-7)
    upstream = torch.randn_like(found) * MASK[..., None]
    ours, theirs = (torch.autograd.grad((out * upstream).sum(), x)[0] for out in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
