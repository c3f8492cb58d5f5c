"""The kernels of a GPU compared with a dense float64 softmax, values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import self_layer
from torch import Tensor

from seq2seq_attn.attention.backend.kernel import gpu_product as module
from seq2seq_attn.attention.backend.kernel.gpu_product import gpu_product
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

pytestmark = pytest.mark.gpu
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
PATTERNS: dict[str, Any] = {
    "local": lambda: LocalPattern(k=7, length_ratio=1.0),
    "wide": lambda: LocalPattern(k=100, length_ratio=1.0),
    "atrous": lambda: AtrousPattern(k=3, length_ratio=1.0),
    "sparse": lambda: SparsePattern(k=5, length_ratio=1.0),
    **{
        name: lambda name=name: self_layer(name).attention.pattern
        for name in ("global_local", "bigbird", "dilated", "block_summary")
    },
}


def inputs(
    target: int, source: int, widths: tuple[int, int], heads: tuple[int, int], dtype: torch.dtype
) -> list[Tensor]:
    """Return queries, keys and values whose heads are side by side in memory, as layers make them."""
    made = []
    for length, head_count, width in zip((target, source, source), (heads[0], heads[1], heads[1]),
                                         (widths[0], *widths), strict=True):  # fmt: skip
        x = torch.randn(2, length, head_count, width, device="cuda").to(dtype).transpose(1, 2)
        made.append(x.detach().requires_grad_())
    return made


def check(pattern: Any, tensors: list[Tensor], mask: Tensor | None, causal: bool) -> None:
    query, keys, values = tensors
    dtype, members = query.dtype, query.shape[1] // keys.shape[1]
    found = gpu_product(query * 0.25, keys, values, mask, pattern, causal)
    assert found is not None
    assert found.dtype == dtype
    exact = [x.detach().double().requires_grad_() for x in tensors]
    rows, columns = (torch.arange(x.shape[2], device="cuda") for x in (query, keys))
    allowed = pattern.allowed(rows[None], columns)[:, None]
    allowed = allowed & (columns <= rows[:, None]) if causal else allowed
    allowed = allowed if mask is None else allowed & mask[:, None, None]
    wide_keys, wide_values = (x.repeat_interleave(members, 1) for x in exact[1:])
    scores = (0.25 * exact[0] @ wide_keys.mT).masked_fill(~allowed, -1e30)
    expected = (scores.softmax(-1) * allowed) @ wide_values
    assert (found[~allowed.any(-1).expand(found.shape[:3])] == 0).all()
    upstream = torch.randn_like(found)
    ours = torch.autograd.grad(found, tensors, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream.double())
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        assert one.shape == other.shape
        one, other = one.detach().double(), other.detach()
        assert (one - other).abs().max() <= TOLERANCES[dtype] * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_products_and_gradients_are_those_of_a_dense_softmax(
    name: str, causal: bool, masked: bool, dtype: torch.dtype
) -> None:
    pattern = PATTERNS[name]()
    for length, widths, heads in ((211, (64, 64), (4, 4)), (300, (20, 24), (4, 2)), (1, (16, 16), (1, 1))):
        mask = torch.rand(2, length, device="cuda") > 0.4 if masked else None
        if mask is not None:
            mask[1] = False
        check(pattern, inputs(length, length, widths, heads, dtype), mask, causal)


@pytest.mark.parametrize("name", ["local", "atrous", "sparse"])
def test_another_sequence_is_read_as_well(name: str) -> None:
    for target, source in ((70, 211), (211, 70)):
        check(PATTERNS[name](), inputs(target, source, (32, 48), (2, 2), torch.float32), None, False)


@pytest.mark.parametrize("name", ["local", "sparse"])
def test_a_head_of_128_is_read_with_fewer_stages(name: str) -> None:
    check(PATTERNS[name](), inputs(211, 211, (128, 128), (2, 2), torch.bfloat16), None, True)


@pytest.mark.parametrize("name", ["local", "sparse"])
def test_a_context_that_is_changed_in_place_gives_no_wrong_gradients(name: str) -> None:
    """As with PyTorch's fused attention, which keeps its output for the gradients too."""
    query, keys, values = inputs(211, 211, (16, 16), (2, 2), torch.float32)
    found = gpu_product(query, keys, values, None, PATTERNS[name](), False)
    assert found is not None
    found.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()


def test_large_scores_stay_finite() -> None:
    tensors = inputs(211, 211, (64, 64), (2, 2), torch.bfloat16)
    query, keys, values = (x.detach() * 100 for x in tensors)
    query.requires_grad_()
    found = gpu_product(query, keys, values, None, PATTERNS["local"](), False)
    assert found is not None
    assert found.isfinite().all()
    assert torch.autograd.grad(found.sum(), query)[0].isfinite().all()


def test_what_the_kernels_do_not_serve_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = inputs(70, 70, (16, 16), (2, 2), torch.float32)
    pattern = PATTERNS["local"]()
    assert gpu_product(query, keys, values, None, pattern, False) is not None
    assert gpu_product(query.double(), keys.double(), values.double(), None, pattern, False) is None
    assert gpu_product(query.cpu(), keys.cpu(), values.cpu(), None, pattern, False) is None
    for width, dtype in ((129, torch.bfloat16), (65, torch.float32)):
        wide = torch.randn(2, 2, 70, width, device="cuda", dtype=dtype)
        assert gpu_product(wide, wide, wide, None, pattern, False) is None
    assert gpu_product(query, keys.half(), values, None, pattern, False) is None
    monkeypatch.setattr(module, "MOST_HEADS", 3)
    assert gpu_product(query, keys, values, None, pattern, False) is None  # two sentences of two heads
    monkeypatch.undo()
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert gpu_product(query, keys, values, None, pattern, False) is None
