"""Feature maps against performer-pytorch, which computes the same sums with features of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor
from torch.nn import functional as F

theirs = pytest.importorskip("performer_pytorch.performer_pytorch")
DIM, HEADS, TARGET, SOURCE = 24, 3, 11, 131
pytestmark = pytest.mark.usefixtures("double")


def layer(preset: str) -> Any:
    return attention_of(preset, f"attention.num_heads={HEADS}", query_dim=DIM, key_dim=DIM, value_dim=DIM).eval()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(2, (HEADS, -1)).transpose(1, 2)


def features(preset: str, attention: Any, x: Tensor, *, is_query: bool) -> Tensor:
    """Of projected queries or keys, with nothing added to them, as far as their code is asked."""
    if preset == "linear":
        return F.elu(x) + 1
    return theirs.softmax_kernel(x, projection_matrix=attention.feature_map.directions, is_query=is_query, eps=0.0)


def parts(preset: str, attention: Any, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        features(preset, attention, heads(attention.project_query(query)), is_query=True),
        features(preset, attention, heads(attention.project_key(keys)), is_query=False),
        heads(attention.project_values(keys)),
    )


@pytest.mark.parametrize("preset", ["linear", "performer"])
def test_cross_attention_is_linear_attention_of_performer_pytorch(preset: str) -> None:
    attention, query, keys = layer(preset), torch.randn(2, TARGET, DIM), torch.randn(2, SOURCE, DIM)
    expected = theirs.linear_attention(*parts(preset, attention, query, keys))
    found = attention(query, attention.prepare(keys)).context
    torch.testing.assert_close(found, attention.project_output(expected.transpose(1, 2).flatten(2)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", ["linear", "performer"])
def test_causal_attention_is_theirs_values_and_gradients(preset: str) -> None:
    attention, x = layer(preset), torch.randn(2, SOURCE, DIM, requires_grad=True)
    expected = theirs.causal_linear_attention_noncuda(*parts(preset, attention, x, x), eps=0.0)
    expected = attention.project_output(expected.transpose(1, 2).flatten(2))
    found = attention.attend_self(x, causal=True).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    gradients = [
        torch.autograd.grad((context * upstream).sum(), [x, *attention.parameters()]) for context in (found, expected)
    ]
    for ours, other in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-10)
