"""`sink` against the eager attention of GptOss and `soft_cap` against that of Gemma2, both of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from configs import attention_of
from torch import Tensor

pytest.importorskip("transformers")
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss

from seq2seq_attn.nn.heads import split_heads

pytestmark = pytest.mark.usefixtures("double")
B, N, HEADS, DIM = 2, 11, 3, 15
MASK = torch.arange(N) < torch.tensor([[N], [6]])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", ["sink", "soft_cap"])
def test_context_and_weights_equal_those_of_transformers(preset: str, causal: bool) -> None:
    layer = attention_of(preset, f"attention.num_heads={HEADS}", query_dim=DIM, key_dim=DIM, value_dim=DIM).eval()
    x = 3 * torch.randn(B, N, DIM)
    score = layer.score.score if preset == "soft_cap" else layer.score
    heads = [split_heads(f(x), HEADS) for f in (score.project_query, score.project_key, layer.project_values)]
    allowed = MASK[:, None, None] & (torch.ones(N, N, dtype=torch.bool).tril() if causal else True)
    hidden = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float64).min)
    module = SimpleNamespace(num_key_value_groups=1, training=False, head_dim=DIM // HEADS)
    scaling = (DIM // HEADS) ** -0.5
    if preset == "sink":
        layer.normalizer.logits.data.normal_()
        module.sinks = layer.normalizer.logits
        context, weights = modeling_gpt_oss.eager_attention_forward(module, *heads, hidden, scaling)
        tolerance = 1e-12
    else:
        layer.score.cap = 2.0
        context, weights = modeling_gemma2.eager_attention_forward(module, *heads, hidden, scaling=scaling, softcap=2.0)
        tolerance = 1e-6  # its softmax is in float32
    found = layer.attend_self(x, MASK, causal=causal, need_weights=True)
    check(found.weights, weights, tolerance)
    check(found.context, layer.project_output[0](context.flatten(2)), tolerance)


def check(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
