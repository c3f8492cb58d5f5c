"""Attention without the CPU's kernel, as on a GPU: the same numbers, O(n k) memory and work, no wait for the device."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from attention.layers import WIDTH, by_blocks, cross_layer, has_blocks, self_layer
from attention.test_sparse_kernels import allowed_pairs, dense, distance, inputs, scaled
from attention.test_sparse_ways import attending, check_itself
from configs import attentions_at_once
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seq2seq_attn.attention.backend import fused as fused_module
from seq2seq_attn.attention.backend.fused import portable_product
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

both = pytest.mark.parametrize("causal", [False, True])
one_group = pytest.mark.parametrize(
    ("kind", "k"), [(LocalPattern, 3), (LocalPattern, 32), (AtrousPattern, 1), (AtrousPattern, 7), (SparsePattern, 1)]
)
TOLERANCES = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 6e-2}


@pytest.fixture
def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_module, "block_product", lambda *_, **__: None)


def check(pattern: Any, target: int, source: int, causal: bool, mask: Tensor | None, dtype: torch.dtype) -> None:
    tensors = [x.to(dtype).requires_grad_() for x in inputs(3, 2, target, source, 5, 7, apart=True)]
    exact = [x.detach().double().requires_grad_() for x in tensors]
    allowed = allowed_pairs(pattern, target, source, causal, [source] * 3)
    allowed = allowed if mask is None else allowed & mask[:, None, None]
    (blocks,) = pattern.block_groups(target, source, causal)
    found = portable_product(scaled(tensors[0]), *tensors[1:], mask, blocks)
    expected = dense(scaled(exact[0]), *exact[1:], allowed)
    assert found.dtype == dtype
    assert distance(found, expected) <= TOLERANCES[dtype]
    assert (found[~allowed.any(-1).expand(found.shape[:3])] == 0).all()
    upstream = torch.randn_like(found)
    ours = torch.autograd.grad(found, tensors, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream.double())
    for one, other in zip(ours, theirs, strict=True):
        assert distance(one, other) <= TOLERANCES[dtype] * max(1.0, float(other.abs().max()))


@both
@one_group
def test_blocks_equal_a_dense_float64_softmax(kind: Any, k: int, causal: bool) -> None:
    pattern = kind(k=k, length_ratio=1.0)
    for target, source in [(211, 211), (1, 1)] if causal else [(211, 211), (40, 211), (211, 40), (1, 5)]:
        padded = torch.arange(source) < torch.tensor([[source], [source // 2], [0]])
        for mask in (None, padded, torch.rand(3, source) > 0.4):
            check(pattern, target, source, causal, mask, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@one_group
def test_blocks_of_less_precision_are_near_a_dense_float64_softmax(kind: Any, k: int, dtype: torch.dtype) -> None:
    mask = torch.arange(131) < torch.tensor([[131], [60], [0]])
    check(kind(k=k, length_ratio=1.0), 131, 131, True, mask, dtype)


@both
def test_query_heads_that_share_keys_equal_a_dense_softmax(causal: bool) -> None:
    pattern = LocalPattern(k=3, length_ratio=1.0)
    query, keys, values = inputs(2, 6, 71, 71, 5, 5, apart=True)
    keys, values = keys[:, :2], values[:, :2]
    found = portable_product(query, keys, values, None, pattern.block_groups(71, 71, causal)[0])
    repeated = (x.repeat_interleave(3, 1) for x in (keys, values))
    expected = dense(query, *repeated, allowed_pairs(pattern, 71, 71, causal, [71, 71]))
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("double", "without_kernel")
@both
@pytest.mark.parametrize("pattern", ["local", "atrous", "sparse"])
def test_a_layer_without_the_kernel_equals_all_pairs(
    pattern: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_itself(attending(pattern), causal, monkeypatch)


@pytest.mark.usefixtures("double", "without_kernel")
@pytest.mark.parametrize(
    "preset", ["local", "local_m", "atrous", "sparse", "alternating", "global_local", "bigbird", "dilated"]
)
def test_presets_without_the_kernel_give_the_values_and_gradients_of_dense(preset: str) -> None:
    layer = by_blocks(self_layer(preset))
    x, mask = torch.randn(2, 67, WIDTH, requires_grad=True), torch.arange(67) < torch.tensor([[67], [31]])
    for causal in (False, True):
        outputs = []
        for backend in ("auto", "dense"):
            layer.attention.backend = backend
            context = layer(x, mask, causal=causal).context[mask]
            upstream = torch.linspace(-1, 1, context.numel()).view_as(context)
            inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
            outputs.append([context, *torch.autograd.grad(context, inputs, upstream)])
        for ours, theirs in zip(*outputs, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@both
@pytest.mark.parametrize("preset", ["local", "atrous", "sparse", "global_local"])
def test_work_and_what_is_kept_for_the_gradient_are_far_from_all_pairs(preset: str, causal: bool) -> None:
    """Counted on torch's meta device, where nothing is computed and the kernel of the CPU does not serve."""
    n, options = 2048, [] if preset == "global_local" else ["attention.pattern.k=32"]
    layer = self_layer(preset, *options).to("meta")
    counted = []
    for backend in ("auto", "dense"):
        layer.attention.backend = backend
        kept: list[int] = []

        def keep(x: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(x.numel())
            return x

        x = torch.empty(1, n, WIDTH, device="meta", requires_grad=True)
        with FlopCounterMode(display=False) as flops, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            layer(x, causal=causal).context.sum().backward()
        counted.append((flops.get_total_flops(), sum(kept)))
    (work, numbers), (all_work, all_numbers) = counted
    assert work < all_work / 5
    assert numbers < all_numbers / 4


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(preset, marks=[pytest.mark.slow] if number % 2 else [])
        for number, preset in enumerate(attentions_at_once())
    ],
)
def test_no_attention_reads_a_number_from_the_device(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the meta device hold no numbers: whatever would make a GPU wait for one raises an error."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which knows no meta device
    x = torch.empty(3, 83, WIDTH, device="meta", requires_grad=True)
    mask = torch.empty(3, 83, dtype=torch.bool, device="meta")
    for make in (lambda layer: layer.train(), by_blocks):
        layer = make(self_layer(preset)).to("meta")
        for causal in (False, True) if has_blocks(layer) else (layer.training,):
            layer(x, mask, causal=causal).context.sum().backward()
        past = layer(x, causal=True).memory
        assert layer.attention.attend_self(x[:, :1], past=past, causal=True).context.is_meta
        attention = make(cross_layer(preset)).to("meta").attention
        memory = attention.prepare(x, mask=mask)
        attention(x, memory).context.sum().backward()
        assert attention(x[:, :1], memory, start=3).context.is_meta
