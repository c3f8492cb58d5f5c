"""softmax(query keys^T) values by PyTorch's fused kernels, which get queries, keys and values in a form they take.

For other forms, `scaled_dot_product_attention` falls back to plain operations, which store the weights of all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ALIGNED = 8  # numbers: the kernels of a GPU take heads of a multiple of it
FLASH = (torch.float16, torch.bfloat16)  # what a GPU's flash kernel takes, the only one that shares keys uncopied
FEW_ROWS = 8  # whose weights are few, so that it costs more to copy all keys into another form
ALL_BUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
CHOOSING = Lock()  # which kernels PyTorch may take is a setting of the process, not of a thread


def torch_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    allowed: Bool[Tensor, "#batch #heads #target source"] | Float[Tensor, "#batch 1 #target source"] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "batch heads target value_width"]:
    """Return the context; a row that sees nothing gets zeros.

    Args:
        allowed: which keys a row may see, boolean or as 0 and -inf; None: all.
        causal: row t sees keys 0..t only; not with `allowed`.
    """
    width, value_width = query.shape[-1], values.shape[-1]
    if (query.is_cuda or width != value_width) and query.shape[2] > FEW_ROWS:
        query, keys, values = kernel_inputs(query, keys, values, masked=allowed is not None, on_gpu=query.is_cuda)
    with kernels(query, masked=allowed is not None):
        context = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=allowed, is_causal=causal, scale=1.0,
            enable_gqa=query.shape[1] != keys.shape[1],
        )  # fmt: skip
    return context if context.shape[-1] == value_width else context[..., :value_width]


def kernels(query: Float[Tensor, "batch heads target width"], *, masked: bool) -> AbstractContextManager[None]:
    """Return a context in which PyTorch takes no kernel that is wrong for these queries.

    Since torch 2.11, an H100 takes cuDNN's kernel in half precision. Under a mask it gives rows that see nothing a mean
    of hidden values, and some rows NaN as gradients (https://github.com/pytorch/pytorch/issues/196678). For a single
    query it does so without a mask (https://github.com/NVIDIA/cudnn-frontend/issues/1072); for a few it gains nothing.
    """
    may_be_half = query.dtype != torch.float64  # under autocast, float32 is cast within the call
    wrong = query.is_cuda and may_be_half and (masked or query.shape[2] <= FEW_ROWS)
    if not wrong:
        return nullcontext()
    return sdpa_kernel(ALL_BUT_CUDNN) if torch.compiler.is_compiling() else without_cudnn()


@contextmanager
def without_cudnn() -> Iterator[None]:
    with CHOOSING, sdpa_kernel(ALL_BUT_CUDNN):
        yield


def kernel_inputs(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    *,
    masked: bool,
    on_gpu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return heads of one width, filled up with zeros, which change no product.

    On a GPU the width is a multiple of 8, and shared keys and values are repeated for each head of queries, unless the
    flash kernel reads them: in half precision and without a mask.
    """
    width, shared = max(query.shape[-1], values.shape[-1]), query.shape[1] // keys.shape[1]
    if on_gpu:
        width += -width % ALIGNED
        if shared > 1 and (masked or query.dtype not in FLASH):
            keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
    return pad_width(query, width), pad_width(keys, width), pad_width(values, width)


def pad_width(x: Float[Tensor, "batch heads length _"], width: int) -> Float[Tensor, "batch heads length {width}"]:
    """Fill heads up with zeros."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
