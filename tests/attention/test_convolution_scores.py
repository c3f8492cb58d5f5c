"""Lightweight and dynamic convolution, compared with convolutions over padded values as their paper writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.layers import by_blocks
from configs import attention_of
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention import SelfAttention
from seq2seq_attn.attention.build import no_relative
from seq2seq_attn.errors import UserError

B, N, HEADS, WIDTH, K = 3, 13, 3, 15, 2
MASK = torch.arange(N) < torch.tensor([[13], [6], [1]])
PRESETS = ["dynamic_conv", "lightweight_conv"]
both = pytest.mark.parametrize("preset", PRESETS)


def layer(preset: str, max_distance: int = K, *overrides: str, heads: int = HEADS, width: int = WIDTH) -> Any:
    options = [f"num_heads={heads}", f"score.max_distance={max_distance}", f"pattern.k={min(K, max_distance)}"]
    sizes = {"query_dim": width, "key_dim": width, "value_dim": width, "relative": no_relative}
    return attention_of(preset, *(f"attention.{option}" for option in (*options, *overrides)), **sizes).eval()


def convolved(attention: Any, x: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """The convolution of the paper, each position divided by the sum of those weights that are not on zeros."""
    if hasattr(attention.score, "table"):
        numbers = attention.score.table.mT.expand(B, N, HEADS, 2 * K + 1)
    else:
        numbers = (x @ attention.score.project.weight.mT).view(B, N, HEADS, 2 * K + 1)
    after = 0 if causal else K
    kernels = numbers[..., : K + 1 + after].softmax(-1)
    values = (x @ attention.project_values.weight.mT) * mask[..., None]
    windows = F.pad(values, (0, 0, K, after)).unfold(1, K + 1 + after, 1).unflatten(2, (HEADS, -1))
    real = F.pad(mask.double(), (K, after)).unfold(1, K + 1 + after, 1)
    sums = torch.einsum("bthj,bthcj->bthc", kernels, windows)
    shares = torch.einsum("bthj,btj->bth", kernels, real)
    context = sums / shares.masked_fill(shares == 0, 1.0)[..., None]
    return context.flatten(2) @ attention.project_output[0].weight.mT


@both
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_the_convolution_of_its_paper_over_the_tokens_that_are_there(
    preset: str, causal: bool, blocks: bool
) -> None:
    attention = layer(preset)
    if blocks:
        by_blocks(SelfAttention(attention))
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    inputs = [torch.randn(B, N, WIDTH, requires_grad=True), *attention.parameters()]
    upstream = torch.randn(B, N, WIDTH) * MASK[..., None]
    expected = convolved(attention, inputs[0], MASK, causal)
    theirs = torch.autograd.grad((expected * upstream).sum(), inputs)
    for need_weights in (False, True):
        found = attention.attend_self(inputs[0], MASK, causal=causal, need_weights=need_weights).context
        torch.testing.assert_close(found[MASK], expected[MASK], rtol=0, atol=1e-12)
        ours = torch.autograd.grad((found * upstream).sum(), inputs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.usefixtures("double")
def test_away_from_the_ends_it_is_a_depthwise_convolution_of_torch() -> None:
    attention, x = layer("lightweight_conv"), torch.randn(B, N, WIDTH)
    kernels = attention.score.table.softmax(0).mT.repeat_interleave(WIDTH // HEADS, 0)
    values = attention.project_values(x)
    expected = attention.project_output(F.conv1d(values.mT, kernels[:, None], groups=WIDTH).mT)
    found = attention.attend_self(x).context[:, K : N - K]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_kernels_by_hand() -> None:
    options = ("project_values=false", "project_output=false")
    lightweight, dynamic = (layer(preset, 1, *options, heads=1, width=1) for preset in PRESETS[::-1])
    lightweight.score.table.data = torch.tensor([[0.0], [math.log(2)], [0.0]])
    x = torch.tensor([[[0.0], [4.0], [8.0], [12.0]]])
    torch.testing.assert_close(lightweight.attend_self(x).context, torch.tensor([[[4 / 3], [4], [8], [32 / 3]]]))
    causal = torch.tensor([[[0], [8 / 3], [20 / 3], [32 / 3]]])
    torch.testing.assert_close(lightweight.attend_self(x, causal=True).context, causal)
    dynamic.score.project.weight.data = torch.tensor([[0.0], [1.0], [0.0]])
    query = torch.tensor([[[5.0], [math.log(2)], [0.0], [math.log(3)]]])
    weights = dynamic(query, dynamic.prepare(x), need_weights=True).weights[0, 0]
    expected = torch.tensor([[1 / 4, 1 / 2, 1 / 4, 0], [0, 1 / 3, 1 / 3, 1 / 3], [0, 0, 1 / 4, 3 / 4]])
    torch.testing.assert_close(weights[1:], expected)


@both
@pytest.mark.usefixtures("double")
def test_of_a_kernel_longer_than_the_window_the_middle_counts(preset: str) -> None:
    attention, longer = layer(preset), layer(preset, 5)
    state = attention.state_dict()
    if preset == "lightweight_conv":
        state["score.table"] = F.pad(attention.score.table, (0, 0, 3, 3), value=7.0)
    else:
        weight = attention.score.project.weight.view(HEADS, 2 * K + 1, WIDTH)
        state["score.project.weight"] = F.pad(weight, (0, 0, 3, 3), value=7.0).flatten(0, 1)
    longer.load_state_dict(state)
    x = torch.randn(B, N, WIDTH)
    torch.testing.assert_close(longer.attend_self(x).context, attention.attend_self(x).context, rtol=0, atol=1e-12)


@both
@pytest.mark.usefixtures("double")
def test_no_content_of_another_token_counts_and_none_at_all_where_the_score_reads_no_query(preset: str) -> None:
    attention, (x, other) = layer(preset), torch.randn(2, B, N, WIDTH)
    memory, another = attention.prepare(x), attention.prepare(other)
    weights = attention(x, memory, need_weights=True).weights
    assert torch.equal(attention(x, another, need_weights=True).weights, weights)
    reads_query = preset == "dynamic_conv"
    assert attention.reads_query is attention.score.reads_query is reads_query
    assert torch.equal(attention(other, memory, need_weights=True).weights, weights) is not reads_query


@both
def test_a_kernel_without_neighbours_is_refused(preset: str) -> None:
    sentence = r"^attention\.score\.max_distance=0 must be at least 1; use 10, the k of local$"
    with pytest.raises(UserError, match=sentence):
        attention_of(preset, "attention.score.max_distance=0", query_dim=6, key_dim=6, value_dim=6)
