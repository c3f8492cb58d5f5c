"""Multi-head latent attention against that of transformers, written for the weights of DeepSeek-V3."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor

from seq2seq_attn.position.rotary import RotaryPosition

DIM, HEADS, HEAD_DIM, RANK, ROTARY, B, N = 24, 4, 6, 11, 2, 3, 13
ROTATIONS = RotaryPosition(dim=DIM, base=10000.0)
pytestmark = pytest.mark.usefixtures("double")


def deepseek(query_rank: int | None, bias: bool) -> tuple[Any, Any]:
    """Their layer and what rotates its queries and keys."""
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config

    config = DeepseekV3Config(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=query_rank,
        kv_lora_rank=RANK,
        qk_rope_head_dim=ROTARY,
        qk_nope_head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        attention_bias=bias,
        rope_interleave=False,
        rope_parameters={"rope_type": "default", "rope_theta": ROTATIONS.base},
    )
    config._attn_implementation = "eager"
    return modeling.DeepseekV3Attention(config, layer_idx=0).double(), modeling.DeepseekV3RotaryEmbedding(config)


def copied(theirs: Any, query_rank: int | None, bias: bool) -> Any:
    """Our layer with their weights, which are stored as one matrix for what is rotated and what is not."""
    options = [f"attention.num_heads={HEADS}", f"attention.qkv_bias={str(bias).lower()}"]
    widths = {"kv_rank": RANK, "query_rank": query_rank or "null", "rotary_dim": ROTARY}
    options += [f"attention.score.{name}={width}" for name, width in widths.items()]
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    attention = attention_of("latent", *options, **sizes, relative=ROTATIONS.relative)
    score = attention.score
    down, up, output = theirs.kv_a_proj_with_mqa, theirs.kv_b_proj.weight, attention.project_output[0]
    content, rotated = of_heads(theirs.q_proj.weight if query_rank is None else theirs.q_b_proj.weight, ROTARY)
    keys, values = of_heads(up, HEAD_DIM)
    weights = [
        (score.compress_keys.weight, down.weight[:RANK]),
        (score.rotary_key.weight, down.weight[RANK:]),
        (score.key_gain, theirs.kv_a_layernorm.weight),
        (score.project_query.weight, content),
        (score.rotary_query.weight, rotated),
        (score.project_key.weight, keys),
        (attention.project_values.weight, values),
        (output.weight, theirs.o_proj.weight),
    ]
    if bias:
        weights += [(score.compress_keys.bias, down.bias[:RANK]), (score.rotary_key.bias, down.bias[RANK:])]
        weights += [(output.bias, theirs.o_proj.bias)]
    if query_rank is not None:
        weights += [(score.compress_query.weight, theirs.q_a_proj.weight)]
        weights += [(score.query_gain, theirs.q_a_layernorm.weight)]
        weights += [(score.compress_query.bias, theirs.q_a_proj.bias)] if bias else []
    for ours, other in weights:
        assert ours.shape == other.shape
        ours.data = other.detach().clone()
    return attention


def of_heads(weight: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last rows of each head, which are stored side by side."""
    heads = weight.unflatten(0, (HEADS, -1))
    return heads[:, :-last].flatten(0, 1), heads[:, -last:].flatten(0, 1)


@pytest.mark.parametrize(("query_rank", "bias"), [(None, False), (5, False), (5, True)])  # theirs has no fourth
def test_deepseek_v3_gives_the_same_output_and_gradients(query_rank: int | None, bias: bool) -> None:
    theirs, rotations = deepseek(query_rank, bias)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    attention = copied(theirs, query_rank, bias)
    x = torch.randn(B, N, DIM, requires_grad=True)
    causal = torch.full((N, N), -math.inf).triu(1)[None, None].expand(B, -1, -1, -1)
    expected, _ = theirs(x, rotations(x, torch.arange(N)[None]), causal)
    found = attention.attend_self(x, causal=True).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # their angles are rounded to float32
    upstream = torch.randn_like(expected)
    ours, others = (torch.autograd.grad((out * upstream).sum(), x)[0] for out in (found, expected))
    torch.testing.assert_close(ours, others, rtol=1e-5, atol=1e-5)
