"""Linear layers; in a search on a CPU, by oneDNN where that is faster than MKL.

Every module of the package uses these instead of torch's own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.nn.search_mode import rounding_may_differ

# Multiplications from which oneDNN is faster on one core of an EPYC (Zen 5): a call costs 12 us, one of MKL 2.
MIN_PRODUCTS = 2**20


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
    large = rounding_may_differ() and x.numel() * weight.shape[0] >= MIN_PRODUCTS
    single = large and x.is_cpu and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if single and onednn_is_faster():
        return onednn_linear(x, weight, bias)
    return F.linear(x, weight, bias)


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b by oneDNN, for float32 on a CPU.

    It compiles a kernel for each number of rows, in about a millisecond. Rows are therefore added until their number is
    one of at most eight an octave. The operator is private: torch.compile makes it of a linear layer, in torch 2.13. It
    ignores the stride of a bias, and autocast does not know it.
    """
    rows = x.numel() // x.shape[-1]
    missing = -rows % (max(128, 1 << rows.bit_length()) // 16)
    padded = F.pad(x.reshape(rows, -1), (0, 0, 0, missing)) if missing else x
    bias = None if bias is None else bias.contiguous()
    output = torch.ops.mkldnn._linear_pointwise.default(padded, weight, bias, "none", [], "")
    return output[:rows].view(*x.shape[:-1], -1) if missing else output


@cache
def onednn_is_faster() -> bool:
    """Return whether torch has oneDNN, and the processor AVX-512 that MKL uses on processors of Intel alone.

    One core of an EPYC (Zen 5) multiplies 64 rows by 128 x 8,000 at 84 GFLOP/s by MKL, and at 204 by oneDNN.
    """
    cpuinfo = Path("/proc/cpuinfo")
    mkl_is_fast = not cpuinfo.exists() or "GenuineIntel" in cpuinfo.read_text()
    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_onednn and not mkl_is_fast and torch.backends.cpu.get_cpu_capability() == "AVX512"
