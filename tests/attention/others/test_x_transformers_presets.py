"""Whole layers against x-transformers, and the local pattern against local-attention, both by lucidrains.

Their layers get our weights. x-transformers projects without biases, as our presets do by default. Its softmax is in
float32 unless another function is given.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from attention.others.package import package
from configs import attention_of
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.build import no_relative

x_transformers = package("x_transformers")
local_attention = package("local_attention")

HEADS, HEAD_DIM = 3, 5
WIDTH = HEADS * HEAD_DIM
B, N, SOURCE, K = 3, 23, 29, 7
MASK = torch.arange(N) < torch.tensor([[N], [N - 9], [1]])
SOURCE_MASK = torch.arange(SOURCE) < torch.tensor([[SOURCE], [SOURCE - 9], [1]])

pytestmark = pytest.mark.usefixtures("double")


def ours_and_theirs(*overrides: str, theirs: dict[str, Any], cross: bool = False) -> tuple[Any, Any]:
    """Return a layer of ours, and one of x-transformers with the same weights; overrides of the preset `multihead`."""
    relative = {} if cross else {"relative": no_relative}
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    layer = attention_of("multihead", f"attention.num_heads={HEADS}", *overrides, **sizes, **relative)
    softmax = partial(F.softmax, dim=-1)
    other = x_transformers.Attention(dim=WIDTH, heads=HEADS, dim_head=HEAD_DIM, custom_attn_fn=softmax, **theirs)
    weights = {
        "to_q": layer.score.project_query,
        "to_k": layer.score.project_key,
        "to_v": layer.project_values,
        "to_out": layer.project_output[0],
    }
    for name, projection in weights.items():
        getattr(other, name).load_state_dict(projection.state_dict())
    return layer, other


def check(found: Tensor, expected: Tensor, *inputs: Tensor, real: Tensor = MASK) -> None:
    """Compare contexts, where a query is a token, and their gradients."""
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-12)
    upstream = torch.randn_like(found) * real[..., None]
    ours, theirs = (torch.autograd.grad(context, inputs, upstream) for context in (found, expected))
    for our_gradient, their_gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_gradient, their_gradient, rtol=0, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
def test_multihead_equals_theirs(causal: bool) -> None:
    layer, other = ours_and_theirs(theirs={"causal": causal})
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    check(layer.attend_self(x, MASK, causal=causal).context, other(x, mask=MASK), x)


def test_multihead_from_one_sequence_to_another_equals_theirs() -> None:
    layer, other = ours_and_theirs(theirs={}, cross=True)
    query = torch.randn(B, N, WIDTH, requires_grad=True)
    keys = torch.randn(B, SOURCE, WIDTH, requires_grad=True)
    found = layer(query, layer.prepare(keys, mask=SOURCE_MASK)).context
    check(found, other(query, context=keys, context_mask=SOURCE_MASK), query, keys)


def test_causal_local_attention_equals_theirs_to_the_last_keys() -> None:
    layer, other = ours_and_theirs(
        "attention/pattern=local", f"attention.pattern.k={K}", theirs={"causal": True, "max_attend_past": K}
    )
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    check(layer.attend_self(x, MASK, causal=True).context, other(x, mask=MASK), x)


@pytest.mark.parametrize("causal", [False, True])
def test_the_local_pattern_equals_their_exact_window_of_one_bucket_to_each_side(causal: bool) -> None:
    """Their window of w sees w keys before the query and, unless causal, w after it, as ours of k = w does.

    Theirs has no projections, so values and queries are given in heads. `exact_windowsize` cuts the buckets next to
    that of the query to the window. Padding is hidden as a key; the contexts of padding are arbitrary in both.
    """
    layer = attention_of(
        "local",
        f"attention.num_heads={HEADS}",
        f"attention.pattern.k={K}",
        query_dim=WIDTH,
        key_dim=WIDTH,
        value_dim=WIDTH,
        relative=no_relative,
    )
    other = local_attention.LocalAttention(
        window_size=K,
        causal=causal,
        look_backward=1,
        look_forward=0 if causal else 1,
        exact_windowsize=True,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    projections = (layer.score.project_query, layer.score.project_key, layer.project_values)
    heads = [projection(x).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for projection in projections]
    expected = layer.project_output(other(*heads, mask=MASK).transpose(1, 2).flatten(2))
    check(layer.attend_self(x, MASK, causal=causal).context, expected, x)
