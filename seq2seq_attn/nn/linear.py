"""Linear layers which, in a search on a CPU, oneDNN computes where MKL, torch's library for float32, is slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

# Multiplications from which oneDNN is faster on one core of an EPYC (Zen 5): a call costs 12 us, one of MKL 2.
MIN_PRODUCTS = 2**20
BY_ONEDNN: ContextVar[bool] = ContextVar("BY_ONEDNN", default=False)


@final
class Linear(nn.Linear):
    """`nn.Linear`, faster in a search."""

    def forward(self, input: Float[Tensor, "*rows input_dim"]) -> Float[Tensor, "*rows output_dim"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*rows input_dim"],
    weight: Float[Tensor, "output_dim input_dim"],
    bias: Float[Tensor, "output_dim"] | None,
) -> Float[Tensor, "*rows output_dim"]:
    """Return W x + b."""
    if not BY_ONEDNN.get() or x.numel() * len(weight) < MIN_PRODUCTS or not (x.is_cpu and x.dtype == torch.float32):
        return F.linear(x, weight, bias)
    rows = x.shape[:-1].numel()
    # oneDNN compiles a kernel for each number of rows, in about a millisecond, so there are at most eight an octave
    missing = -rows % (max(128, 1 << rows.bit_length()) // 16)
    padded = F.pad(x.reshape(rows, -1), (0, 0, 0, missing)) if missing else x
    # private: the operator that torch.compile makes of a linear layer on a CPU, as it is in torch 2.13
    output = torch.ops.mkldnn._linear_pointwise.default(padded, weight, bias, "none", [], "")
    return output[:rows].view(*x.shape[:-1], len(weight)) if missing else output


@contextmanager
def search_products() -> Iterator[None]:
    """Compute products of float32 by oneDNN where it is faster, without gradients.

    It is for searches only. The two libraries may round differently, and the losses of a run keep their digits.
    """
    token = BY_ONEDNN.set(onednn_is_faster() and not torch.is_grad_enabled())
    try:
        yield
    finally:
        BY_ONEDNN.reset(token)


@cache
def onednn_is_faster() -> bool:
    """Return whether the processor has AVX-512 that MKL does not use: it does so on processors of Intel alone.

    One core of an EPYC (Zen 5) multiplies 64 rows by 128 x 8,000 at 84 GFLOP/s by MKL, and at 204 by oneDNN.
    """
    information = Path("/proc/cpuinfo")
    is_intel = not information.exists() or "GenuineIntel" in information.read_text()
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and not is_intel
