"""PyTorch's fused kernels for inputs that they do not take as they are: the same numbers, and no weights stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention.layers import WIDTH, self_layer
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from seq2seq_attn.attention.backend.fused import masked_product
from seq2seq_attn.attention.backend.kernel.torch_product import FEW_ROWS, kernel_inputs, torch_product
from seq2seq_attn.nn.masked import masked_softmax

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
BACKWARD, PLAIN = f"{FLASH}_backward", "aten::_scaled_dot_product_attention_math"
N = 37
MASK = torch.arange(N) < torch.tensor([[37], [11], [0]])
MASKS = {"none": None, "keys": MASK[:, None, None], "pairs": (MASK[:, None] & torch.ones(N, N).tril().bool())[:, None]}


def operations(run: Callable[[], Any]) -> set[str]:
    """Return the names of the operations of torch that run."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run()
    return {event.key for event in recorded.key_averages()}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize(
    ("preset", "overrides"),
    [
        ("multihead", []),
        ("l2", []),  # queries and keys are two numbers wider than values
        ("sink", []),
        ("l2", ["attention/normalizer=sink"]),
        ("multi_query", []),
    ],
)
def test_a_layer_that_is_an_inner_product_takes_the_fused_kernel(
    preset: str, overrides: list[str], mask: Tensor | None, causal: bool
) -> None:
    layer, x = self_layer(preset, *overrides), torch.randn(3, N, WIDTH, requires_grad=True)
    names = operations(lambda: layer(x, mask, causal=causal).context.sum().backward())
    assert {FLASH, BACKWARD} <= names
    assert PLAIN not in names


@pytest.mark.parametrize(("target", "kernel"), [(FEW_ROWS, PLAIN), (FEW_ROWS + 1, FLASH)])
def test_few_rows_do_not_copy_all_keys_into_another_width(target: int, kernel: str) -> None:
    query, keys, values = inputs(target, 5, 7, 2)
    assert kernel in operations(lambda: torch_product(query, keys, values))


def inputs(target: int, width: int, value_width: int, kv_heads: int) -> list[Tensor]:
    shapes = ((4, target, width), (kv_heads, N, width), (kv_heads, N, value_width))
    return [torch.randn(3, *shape, requires_grad=True) for shape in shapes]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("masked", list(MASKS))
@pytest.mark.parametrize(("width", "value_width"), [(5, 7), (7, 5), (8, 8)])
def test_what_kernels_get_has_the_context_and_gradients_of_what_is_given(
    width: int, value_width: int, masked: str, on_gpu: bool
) -> None:
    tensors, allowed = inputs(N, width, value_width, 2), MASKS[masked]
    given = kernel_inputs(*tensors, masked=allowed is not None, on_gpu=on_gpu)
    found = masked_product(*given, allowed)[..., :value_width]
    query, *shared = tensors
    keys, values = (x.repeat_interleave(2, 1) for x in shared)
    expected = masked_softmax(query @ keys.mT, allowed) @ values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(x, tensors, upstream) for x in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("masked", "dtype", "on_gpu", "width", "kv_heads"),
    [
        (True, torch.bfloat16, False, 66, 2),
        (True, torch.bfloat16, True, 72, 4),  # a multiple of 8, and repeated: only the flash kernel shares keys
        (False, torch.float32, True, 72, 4),
        (False, torch.bfloat16, True, 72, 2),
    ],
)
def test_a_gpu_gets_widths_of_a_multiple_of_eight_and_shared_keys_repeated_where_no_kernel_shares_them(
    masked: bool, dtype: torch.dtype, on_gpu: bool, width: int, kv_heads: int
) -> None:
    tensors = [x.to(dtype) for x in inputs(N, 66, 64, 2)]
    shapes = [x.shape for x in kernel_inputs(*tensors, masked=masked, on_gpu=on_gpu)]
    assert shapes == [(3, 4, N, width), (3, kv_heads, N, width), (3, kv_heads, N, width)]


@pytest.mark.parametrize(
    ("dtype", "target", "masked", "allowed"),
    [
        (torch.bfloat16, N, False, True),
        (torch.bfloat16, N, True, False),
        (torch.float16, FEW_ROWS, False, False),
        (torch.float32, N, True, False),  # which autocast casts within the call
        (torch.float64, N, True, True),
    ],
)
def test_the_kernel_of_cudnn_is_not_taken_where_it_is_wrong(
    dtype: torch.dtype, target: int, masked: bool, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives rows that see nothing a mean of hidden values, and some rows NaN; tests/gpu checks the numbers."""
    before, found = torch.backends.cuda.cudnn_sdp_enabled(), []

    def record(query: Tensor, keys: Tensor, values: Tensor, **_: Any) -> Tensor:
        found.append(torch.backends.cuda.cudnn_sdp_enabled())
        return query

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    with FakeTensorMode():  # tensors without data, which may be on a GPU that is not there
        query, keys = (torch.empty(2, 4, n, 16, dtype=dtype, device="cuda") for n in (target, N))
        mask = torch.empty(2, 1, 1, N, dtype=torch.bool, device="cuda") if masked else None
        torch_product(query, keys, keys, mask)
    assert found == [allowed]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
