"""Linear layers; on a CPU, by oneDNN where that is faster than MKL.

Every module of the package uses these instead of torch's own.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.nn.search_mode import rounding_may_differ
from seq2seq_attn.nn.transforms import inside_transform

# Multiplications from which oneDNN is faster on one core of an EPYC (Zen 5): a call costs 12 us, one of MKL 2.
MIN_PRODUCTS = 2**21
MIN_ROWS = 33  # in training; fewer would be padded to more than twice their number
# Rows of one product in training; fewer are rounded up to a multiple of STEP. Each number of rows has a kernel of its
# own, which stays in memory between tensors that come and go, so there are five.
BLOCKS = 1024, 256
STEP = 64
ZEN_5 = 26  # the number of its family
COLUMNS = 800  # of a gradient whose product with the inputs fits the cache


@final
class Linear(nn.Linear):
    """`nn.Linear`, faster on some CPUs."""

    def forward(self, input: Float[Tensor, "*rows input_dim"]) -> Float[Tensor, "*rows output_dim"]:
        return linear(input, self.weight, self.bias)


def is_plain(module: nn.Module) -> bool:
    """Return whether a module computes W x + b and nothing else, so that W and b may be used in its place.

    An adapter in the place of a layer, and a layer with hooks, such as one that `torch.nn.utils.prune` prunes, are not.
    """
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    return type(module).forward in (Linear.forward, nn.Linear.forward) and not hooked


def linear(
    x: Float[Tensor, "*rows input_dim"],
    weight: Float[Tensor, "output_dim input_dim"],
    bias: Float[Tensor, " output_dim"] | None,
) -> Float[Tensor, "*rows output_dim"]:
    """Return W x + b."""
    if not (suits_onednn(x, weight.shape[0]) and fits(x, weight, bias)):
        return F.linear(x, weight, bias)
    if rounding_may_differ():
        return product_of_search(x, weight, bias)
    if x.numel() < MIN_ROWS * x.shape[-1]:
        return F.linear(x, weight, bias)
    return OneDNNLinear.apply(x, weight, bias)


def add_weight_gradient(
    total: Float[Tensor, "output_dim input_dim"],
    x: Float[Tensor, "rows input_dim"],
    grad: Float[Tensor, "rows output_dim"],
) -> None:
    """Add to `total` the gradient of a weight, the sum over rows of the outer products of `grad` and `x`."""
    if total.dtype != grad.dtype:
        total += grad.t() @ x
        return
    whole = blocks(len(x)) if suits_onednn(x, grad.shape[1]) else []
    for block in whole:
        for columns in (slice(begin, begin + COLUMNS) for begin in range(0, len(total), COLUMNS)):
            total[columns] += weight_gradient(x[block], grad[block, columns])
    rest = slice(whole[-1].stop if whole else 0, None)
    total.addmm_(grad[rest].t(), x[rest])


def suits_onednn(x: Float[Tensor, "*rows input_dim"], output_dim: int) -> bool:
    """Return whether the product of x and a weight is worth a call of oneDNN."""
    if torch.compiler.is_compiling():  # before sizes are compared, which would fix those of a dynamic shape
        return False
    products = min(x.numel(), BLOCKS[0] * x.shape[-1]) * output_dim
    large = products >= MIN_PRODUCTS and x.is_cpu and x.dtype == torch.float32
    return large and not torch.is_autocast_enabled("cpu") and onednn_is_faster() and not inside_transform()


def fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the shapes and kinds of a product agree; of those that do not, torch says what is wrong."""
    others = [weight] if bias is None else [weight, bias]
    same_kind = all(one.is_cpu and one.dtype == x.dtype for one in others)
    return same_kind and weight.shape[1:] == x.shape[-1:] and (bias is None or bias.shape == weight.shape[:1])


@final
class OneDNNLinear(torch.autograd.Function):
    """W x + b whose products, and those of its gradients, are by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        needs_grad_x, needs_grad_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_grad_weight else None, weight if needs_grad_x else None)
        ctx.weight_shape = weight.shape
        return product_by_blocks(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = matrix(grad)
        grad_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        if torch.is_grad_enabled():  # a gradient of the gradient is wanted
            grad_x = None if weight is None else grad @ weight
            return grad_x, None if x is None else rows.t() @ matrix(x), grad_bias
        grad_x = None if weight is None else product_by_blocks(grad, weight.t(), None)
        grad_weight = None
        if x is not None and len(rows) < BLOCKS[-1]:
            missing = -len(rows) % STEP
            grad_weight = weight_gradient(with_zeros(matrix(x), missing), with_zeros(rows, missing))
        elif x is not None:
            grad_weight = rows.new_zeros(ctx.weight_shape)
            add_weight_gradient(grad_weight, matrix(x), rows)
        return grad_x, grad_weight, grad_bias


def matrix(x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "all_rows dim"]:
    return x.reshape(-1, x.shape[-1])


def shaped_as(product: Float[Tensor, "all_rows output_dim"], x: Float[Tensor, "*rows dim"]) -> Tensor:
    """Return a product in the shape of x's rows.

    It must not be a view: autograd forbids changing in place what a Function returns as a view.
    """
    return torch.ops.aten._unsafe_view(product, [*x.shape[:-1], product.shape[1]])


def blocks(rows: int) -> list[slice]:
    """Return slices of 1,024 rows, and of 256; fewer than 256 rows remain."""
    slices, begin = [], 0
    for size in BLOCKS:
        while begin + size <= rows:
            slices.append(slice(begin, begin + size))
            begin += size
    return slices


def product_by_blocks(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b; oneDNN computes blocks of rows, and MKL the rest."""
    rows = matrix(x)
    if len(rows) <= BLOCKS[-1]:
        return padded_product(x, -len(rows) % STEP, weight, bias)
    output, whole = x.new_empty(len(rows), len(weight)), blocks(len(rows))
    for block in whole:
        output[block] = multiply(rows[block], weight, bias)
    rest = slice(whole[-1].stop, None)
    output[rest] = F.linear(rows[rest], weight, bias)
    return shaped_as(output, x)


def product_of_search(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b; rows are added until their number is one of at most eight an octave.

    oneDNN compiles a kernel for each number of rows, in about a millisecond.
    """
    rows = x.numel() // x.shape[-1]
    return padded_product(x, -rows % (max(128, 1 << rows.bit_length()) // 16), weight, bias)


def padded_product(x: Tensor, missing: int, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b, computed with this many more rows."""
    rows = matrix(x)
    return shaped_as(multiply(with_zeros(rows, missing), weight, bias)[: len(rows)], x)


def with_zeros(rows: Tensor, missing: int) -> Tensor:
    """Return these rows, and this many of zeros after them."""
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """Return the sum over rows of the outer products of `grad` and `x`; the order is the faster one."""
    x, grad = x.contiguous(), grad.contiguous()
    if grad.shape[1] > 2 * x.shape[1]:
        return multiply(x.t(), grad.t(), None).t()
    return multiply(grad.t(), x.t(), None)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b by a private operator: torch.compile makes it of a linear layer, in torch 2.13.

    It ignores the stride of a bias, takes 2,000 times as long for a weight with gaps between its rows, and is unknown
    to autocast.
    """
    bias = None if bias is None else bias.contiguous()
    if not weight.t().is_contiguous():
        weight = weight.contiguous()
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


@cache
def onednn_is_faster() -> bool:
    """Return whether torch has oneDNN, and the processor is an AMD whose AVX-512 has the full width (Zen 5 or later).

    MKL uses AVX-512 on processors of Intel alone. One core of an EPYC of Zen 5 multiplies 64 rows by 128 x 8,000 at 84
    GFLOP/s by MKL, and at 204 by oneDNN; one of Zen 4, whose AVX-512 has half the width, at 90 and 97, which does not
    pay for the calls.
    """
    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_onednn and torch.backends.cpu.get_cpu_capability() == "AVX512" and amd_family() >= ZEN_5


def amd_family() -> int:
    """Return the number of a processor's family if AMD made it and Linux says so, else 0."""
    file = Path("/proc/cpuinfo")
    match = re.search(r"vendor_id\s*: AuthenticAMD\s*cpu family\s*: (\d+)", file.read_text()) if file.exists() else None
    return int(match[1]) if match else 0
