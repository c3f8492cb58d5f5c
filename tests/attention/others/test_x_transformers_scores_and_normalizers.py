"""Scores and normalizers against x-transformers' `Attend`, on the same projected queries, keys and values."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("x_transformers")
from x_transformers.attend import Attend

from seq2seq_attn.nn.heads import join_heads, split_heads

pytestmark = pytest.mark.usefixtures("double")
B, N, HEADS, DIM = 2, 11, 3, 15
MASK = torch.arange(N) < torch.tensor([[N], [6]])
SOFTMAX = {"custom_attn_fn": partial(F.softmax, dim=-1)}  # theirs goes through float32
CASES: dict[str, dict[str, Any]] = {
    "multihead": SOFTMAX,
    "cosine": {"qk_norm": True},
    "l2": {"l2_distance": True, **SOFTMAX},
    "soft_cap": {"softclamp_logits": True, "logit_softclamp_value": 0.5, **SOFTMAX},
    "sigmoid": {"sigmoid": True},
    "softmax_one": {"add_zero_kv": True, **SOFTMAX},
    "sink": {"head_learned_sink": True, "heads": HEADS, **SOFTMAX},
    "top_k": {"sparse_topk": 3},
}
OVERRIDES = {"soft_cap": ["attention.score.cap=0.5"], "top_k": ["attention.normalizer.k=3"]}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", CASES)
def test_context_and_gradients_equal_those_of_x_transformers(preset: str, causal: bool) -> None:
    layer = attention_of(
        preset, f"attention.num_heads={HEADS}", *OVERRIDES.get(preset, []), query_dim=DIM, key_dim=DIM, value_dim=DIM
    ).eval()
    theirs = Attend(causal=causal, **CASES[preset])
    if preset == "sink":
        layer.normalizer.logits.data.normal_()
        theirs.head_attn_sink = layer.normalizer.logits
    x = torch.randn(B, N, DIM, requires_grad=True)
    inputs = [x, *layer.parameters()]
    score = layer.score.score if preset == "soft_cap" else layer.score
    query, keys, values = (
        split_heads(project(x), HEADS) for project in (score.project_query, score.project_key, layer.project_values)
    )
    visible, bias = MASK[:, None, None], None
    if preset == "cosine":
        query, keys = F.normalize(query, dim=-1), F.normalize(keys, dim=-1)
        theirs.scale = 1.0
        query = query * layer.score.scales[:, None, None]
    if preset == "sigmoid":  # theirs has no bias of its own
        allowed = visible & torch.ones(N, N, dtype=torch.bool).tril() if causal else visible
        bias = -allowed.sum(-1, keepdim=True).double().log()
    context, _ = theirs(query, keys, values, mask=visible, attn_bias=bias)
    expected = layer.project_output[0](join_heads(context))
    found = layer.attend_self(x, MASK, causal=causal).context
    upstream = torch.randn(B, N, DIM) * MASK[..., None]
    torch.testing.assert_close(found[MASK], expected[MASK], rtol=0, atol=1e-12)
    for ours, other in zip(gradients(found, upstream, inputs), gradients(expected, upstream, inputs), strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-10)


def gradients(context: Tensor, upstream: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad((context * upstream).sum(), inputs))
