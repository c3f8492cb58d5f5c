"""PyTorch's kernels on a GPU compared with a dense float64 softmax where some of them have been wrong."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.attention.backend.kernel.torch_product import torch_product
from seq2seq_attn.nn.masked import masked_softmax

pytestmark = pytest.mark.gpu
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2}


@pytest.mark.parametrize("shift", [0.0, -120.0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("target", "source"), [(1, 128), (1, 33), (64, 64), (192, 192), (67, 211)])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_half_precision_is_near_float64(
    dtype: torch.dtype, target: int, source: int, masked: bool, shift: float
) -> None:
    """Values and gradients; all scores are about `shift`, and one sentence has no keys."""
    query, keys, values = (torch.randn(3, 2, n, 64, device="cuda", dtype=dtype) * 0.1 for n in (target, source, source))
    query[..., 0], keys[..., 0] = 1, shift
    tensors = [query.requires_grad_(), keys.requires_grad_(), values.requires_grad_()]
    lengths = torch.tensor([[source], [source // 2], [0]], device="cuda")
    mask = (torch.arange(source, device="cuda") < lengths)[:, None, None] if masked else None
    context = torch_product(query, keys, values, mask)
    if masked:
        assert (context[2] == 0).all()
    exact = [x.detach().double().requires_grad_() for x in tensors]
    expected = masked_softmax(exact[0] @ exact[1].mT, mask) @ exact[2]
    upstream = torch.randn_like(context)
    ours = torch.autograd.grad(context, tensors, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream.double())
    for one, other in zip((context, *ours), (expected, *theirs), strict=True):
        one, other = one.detach().double(), other.detach()
        assert (one - other).abs().max() <= TOLERANCES[dtype] * max(1.0, float(other.abs().max()))
