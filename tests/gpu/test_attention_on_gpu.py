"""Every attention on a GPU: the numbers of the CPU, in every precision, without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from attention.layers import WIDTH, by_blocks, cross_layer, self_layer
from configs import attentions_at_once
from torch import Tensor

pytestmark = pytest.mark.gpu
AT_ONCE = attentions_at_once()
# Which keys they see depends on the order of scores or on a predicted place, so rounding may change it.
ORDERED = {"lsh", "top_blocks", "top_k", "hard", "sparsemax", "entmax15", "adaptive_entmax", "monotonic"}
ORDERED |= {"local_p"}
ROUGH = {"differential": 3.0}  # a difference of two softmaxes loses digits
SMOOTH = [preset for preset in AT_ONCE if preset not in ORDERED]
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
LENGTHS = torch.tensor([[67], [31], [1]])
both = pytest.mark.parametrize("causal", [False, True])


@pytest.fixture
def restored_debug_mode() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def gradients(layer: Any, x: Tensor, mask: Tensor, causal: bool) -> list[Tensor]:
    """Return the context at real positions, and its gradients, on the CPU in float64."""
    x = x.detach().requires_grad_()
    context = layer(x, mask, causal=causal).context
    upstream = torch.linspace(-1, 1, context.numel(), dtype=torch.float64).view_as(context).to(context)
    used = [x, *(p for p in layer.parameters() if p.requires_grad)]
    found = torch.autograd.grad((context * upstream)[mask].sum(), used, allow_unused=True)
    zeros = [torch.zeros_like(one) if gradient is None else gradient for one, gradient in zip(used, found, strict=True)]
    return [tensor.detach().cpu().double() for tensor in (context[mask], *zeros)]


@pytest.mark.usefixtures("double")
@both
@pytest.mark.parametrize("preset", AT_ONCE)
def test_values_and_gradients_are_those_of_the_cpu(preset: str, causal: bool) -> None:
    ours = by_blocks(self_layer(preset))
    theirs = deepcopy(ours)
    theirs.attention.backend = "dense"
    x, mask = torch.randn(3, 67, WIDTH), torch.arange(67) < LENGTHS
    expected = gradients(theirs, x, mask, causal)
    found = gradients(ours.cuda(), x.cuda(), mask.cuda(), causal)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", TOLERANCES)
@both
@pytest.mark.parametrize("preset", SMOOTH)
def test_less_precision_is_near_float64(preset: str, causal: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    ours = by_blocks(self_layer(preset)).to("cuda", dtype)
    theirs = deepcopy(ours).double()
    theirs.attention.backend = "dense"
    x, mask = torch.randn(3, 67, WIDTH, device="cuda", dtype=dtype), (torch.arange(67) < LENGTHS).cuda()
    expected = gradients(theirs, x.double(), mask, causal)
    found = gradients(ours, x, mask, causal)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= ROUGH.get(preset, 1.0) * TOLERANCES[dtype] * max(
            1.0, float(other.abs().max())
        )


@pytest.mark.parametrize("dtype", [torch.float64, *TOLERANCES])
@pytest.mark.parametrize("preset", AT_ONCE)
def test_rows_that_see_nothing_are_zero(preset: str, dtype: torch.dtype) -> None:
    """The kernels of a GPU are others than those of the CPU, which give NaN or the mean of all values."""
    mask = torch.tensor([[True] * 33, [False] * 33], device="cuda")
    for blocks in (False, True):
        layer = cross_layer(preset).to("cuda", dtype)
        layer = by_blocks(layer) if blocks else layer
        query, keys = (torch.randn(2, 33, WIDTH, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
        context = layer(query, keys, mask=mask).context
        assert (context[1] == 0).all()
        used = [query, keys, *(p for p in layer.parameters() if p.requires_grad)]
        for gradient in torch.autograd.grad(context.sum(), used, allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", AT_ONCE)
def test_one_step_at_a_time_equals_all_at_once(preset: str) -> None:
    layer = by_blocks(self_layer(preset)).cuda()
    x = torch.randn(2, 19, WIDTH, device="cuda")
    with torch.inference_mode():
        expected, past, steps = layer(x, causal=True).context, None, []
        for position in x.split(1, 1):
            found = layer.attention.attend_self(position, past=past, causal=True)
            past = found.memory
            steps.append(found.context)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("preset", AT_ONCE)
def test_nothing_waits_for_the_gpu(preset: str, restored_debug_mode: None) -> None:
    layer = by_blocks(self_layer(preset)).cuda().train()
    x = torch.randn(2, 67, WIDTH, device="cuda", requires_grad=True)
    mask = (torch.arange(67) < LENGTHS[:2]).cuda()
    layer(x, mask, causal=True).context.sum().backward()  # kernels are loaded, tables made
    torch.cuda.set_sync_debug_mode("error")  # of torch, where the program would wait for the GPU
    for causal in (False, True):
        layer(x, mask, causal=causal).context.sum().backward()
