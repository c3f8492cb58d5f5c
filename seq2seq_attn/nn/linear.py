"""Linear layers of a search on a CPU, by oneDNN where MKL, torch's library for float32, is slower."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# Multiplications from which oneDNN is faster; measured on one core of an EPYC (Zen 5), a call costs 12 us against MKL's 2.
MIN_PRODUCTS = 2**20
MIN_ROWS = 4


@cache
def onednn_is_faster() -> bool:
    """Return whether the processor has AVX-512 that MKL does not use, as it does on those of Intel alone.

    One core of an EPYC (Zen 5) multiplies 64 rows by 128 x 8,000 at 84 GFLOP/s by MKL, and at 204 by oneDNN.
    """
    information = Path("/proc/cpuinfo")
    vendor_is_intel = not information.exists() or "GenuineIntel" in information.read_text()
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and not vendor_is_intel


def search_linear(
    x: Float[Tensor, "*rows input_dim"],
    weight: Float[Tensor, "output_dim input_dim"],
    bias: Float[Tensor, "output_dim"] | None,
) -> Float[Tensor, "*rows output_dim"]:
    """Return W x + b, without a gradient where oneDNN computes it.

    It is for searches only: the two libraries round differently, and the losses of a run keep their digits.
    """
    rows = x.numel() // max(1, x.shape[-1])
    serves = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32 and not torch.is_grad_enabled()
    if not serves or rows < MIN_ROWS or rows * weight.numel() < MIN_PRODUCTS or not onednn_is_faster():
        return F.linear(x, weight, bias)
    # oneDNN compiles a kernel for each number of rows, in about a millisecond: there are at most eight an octave
    padded = F.pad(x.reshape(rows, -1), (0, 0, 0, -rows % (max(128, 1 << rows.bit_length()) // 16)))
    # the operator that torch.compile uses for a linear layer on a CPU; it is private, and torch 2.13 has it
    output = torch.ops.mkldnn._linear_pointwise.default(padded, weight, bias, "none", [], "")
    return output[:rows].view(*x.shape[:-1], len(weight))
