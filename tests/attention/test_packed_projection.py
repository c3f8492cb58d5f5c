"""Projections of one input as one matrix: the same numbers and gradients as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor, nn

from seq2seq_attn.attention import attention as module
from seq2seq_attn.attention.packed_projection import MIN_PACKED_ROWS

pytestmark = pytest.mark.usefixtures("double")

DIM, HEADS, NEVER = 12, 3, 10**9
MASK = torch.arange(7) < torch.tensor([[7], [3], [5]])


def found(attention: Any, query: Tensor, keys: Tensor, from_rows: int, how: str) -> list[Tensor]:
    """The context and the gradient of everything, where joining begins at so many rows."""
    module.MIN_PACKED_ROWS = from_rows
    inputs = [x.clone().requires_grad_() for x in (query, keys)]
    if how == "cross":
        context = attention(inputs[0], attention.prepare(inputs[1], mask=MASK)).context
    else:
        context = attention.attend_self(inputs[1], MASK).context + inputs[0].sum() * 0
    weighed = (context * torch.arange(1.0, context.numel() + 1).view_as(context)).sum()
    return [context, *torch.autograd.grad(weighed, [*inputs, *attention.parameters()])]


@pytest.mark.parametrize("how", ["cross", "self"])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["attention.qkv_bias=true"],
        ["attention.qk_scale=0.7"],
        ["attention.num_kv_heads=1", "attention.head_dim=5"],
        ["attention/mix=differential", "attention.qkv_bias=true"],
        ["attention/score=cosine", "attention.qkv_bias=true"],
        ["attention/score=l2", "attention.qk_scale=0.7"],
        ["attention/score=qk_norm", "attention.qk_scale=0.7", "attention.num_kv_heads=1", "attention.qkv_bias=true"],
    ],
    ids=" ".join,
)
def test_joined_projections_equal_those_one_by_one(
    how: str, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_PACKED_ROWS", module.MIN_PACKED_ROWS)  # restored after the test
    attention = attention_of(
        "multihead", f"attention.num_heads={HEADS}", *overrides, query_dim=DIM, key_dim=DIM, value_dim=DIM
    )
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    query, keys = torch.randn(3, 5, DIM), torch.randn(3, 7, DIM)
    for one_by_one, packed in zip(
        found(attention, query, keys, NEVER, how), found(attention, query, keys, 1, how), strict=True
    ):
        torch.testing.assert_close(packed, one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [DIM - 1, DIM + 1])
def test_a_scaled_query_is_the_same_whichever_side_is_scaled(rows: int) -> None:
    score = attention_of("scaled_dot", "attention.qkv_bias=true", query_dim=DIM, key_dim=DIM, value_dim=DIM).score
    torch.nn.init.normal_(score.project_query.bias)
    query = torch.randn(1, rows, DIM)
    (prepared,) = score.prepare_query(query)
    torch.testing.assert_close(prepared, score.split_query(score.project_query(query) * score.scale)[0])


def test_autocast_casts_a_packed_matrix_when_it_is_made_and_not_at_each_step() -> None:
    attention = attention_of("multihead", "attention.qkv_bias=true", query_dim=DIM, key_dim=DIM, value_dim=DIM)
    x = torch.randn(3, 7, DIM, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention.packed().weight.dtype == torch.float64  # which autocast leaves as it is
    wide = attention.float().packed()
    with torch.autocast("cpu", torch.bfloat16):
        packed = attention.packed()
        found, expected = packed.project(x), wide.project(x)
    assert wide.weight.dtype == wide.bias.dtype == torch.float32
    assert packed.weight.dtype == packed.bias.dtype == torch.bfloat16
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


class Adapted(nn.Linear):
    """A layer with an adapter of low rank beside its weight (Hu et al. 2021, arXiv:2106.09685)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None)
        self.down, self.up = nn.Linear(layer.in_features, 2), nn.Linear(2, layer.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.up(self.down(x))


def hooked(layer: nn.Linear) -> nn.Linear:
    layer.register_forward_hook(lambda _, inputs, output: 3 * output)
    return layer


@pytest.mark.parametrize("change", [Adapted, hooked])
@pytest.mark.parametrize("which", ["score.project_query", "score.project_key", "project_values"])
@pytest.mark.parametrize("how", ["cross", "self"])
def test_a_projection_that_does_more_than_multiply_is_called(
    how: str, which: str, change: Callable[[nn.Linear], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_PACKED_ROWS", module.MIN_PACKED_ROWS)  # restored after the test
    attention = attention_of("multihead", "attention.num_heads=3", query_dim=DIM, key_dim=DIM, value_dim=DIM)
    attention.set_submodule(which, change(attention.get_submodule(which)))
    query, keys = torch.randn(3, 5, DIM), torch.randn(3, 7, DIM)
    for one_by_one, many in zip(
        found(attention, query, keys, NEVER, how), found(attention, query, keys, 1, how), strict=True
    ):
        torch.testing.assert_close(many, one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("which", ["project_query", "project_key", "project_values"])
def test_linear_attention_calls_a_projection_that_does_more_than_multiply(which: str) -> None:
    attention = attention_of("linear", "attention.num_heads=3", query_dim=DIM, key_dim=DIM, value_dim=DIM)
    x, rows = torch.randn(1, 100, DIM), MIN_PACKED_ROWS - 1
    attention.set_submodule(which, Adapted(attention.get_submodule(which)))
    few = attention.attend_self(x[:, :rows], causal=True).context
    torch.testing.assert_close(attention.attend_self(x, causal=True).context[:, :rows], few)


@pytest.mark.parametrize("rows", [DIM - 1, DIM + 1])
def test_a_query_is_scaled_after_a_projection_that_does_more_than_multiply(rows: int) -> None:
    score = attention_of("scaled_dot", query_dim=DIM, key_dim=DIM, value_dim=DIM).score
    score.project_query = Adapted(score.project_query)
    query = torch.randn(1, rows, DIM)
    (prepared,) = score.prepare_query(query)
    torch.testing.assert_close(prepared, score.split_query(score.project_query(query) * score.scale)[0])
