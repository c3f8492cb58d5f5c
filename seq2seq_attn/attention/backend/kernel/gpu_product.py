"""softmax(query keys^T) values under a pattern on a GPU, by the Triton kernels, which never hold the scores."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2seq_attn.attention.backend.kernel.work_list import WorkList, work_list
from seq2seq_attn.attention.block import AnyBlock
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.tiled import TiledPattern

ROWS = 64  # of a piece, at most
KEYS = {torch.bfloat16: 64, torch.float16: 64, torch.float32: 32}  # read at once: more do not fit into every GPU
NARROWEST = 16  # head that a tensor core takes; a narrower one is filled up with zeros
WIDEST = {torch.bfloat16: 128, torch.float16: 128, torch.float32: 64}  # head that fits into 99 KiB with the rest
LEAST_CAPABILITY = (8, 0)  # of the GPU: earlier ones have no bfloat16
MOST_HEADS = 65535  # of all sentences: the most that the second dimension of a grid has
MAX_CACHED_LISTS = 32
CACHED_LISTS: OrderedDict[Hashable, WorkList] = OrderedDict()  # the last used at the end


def gpu_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    pattern: Pattern,
    causal: bool,
) -> Float[Tensor, "batch heads target value_width"] | None:
    """Return the context, or None where the kernels do not serve.

    They serve half precision and float32 on an NVIDIA GPU with Triton, from Ampere on. They sum gradients in no fixed
    order, so they do not serve where deterministic algorithms are asked for; nor within torch.compile, which makes
    kernels of its own.
    """
    if torch.compiler.is_compiling() or not query.is_cuda or torch.are_deterministic_algorithms_enabled():
        return None
    if not (runs_kernels(query.device) and query.dtype in KEYS and query.dtype == keys.dtype == values.dtype):
        return None
    if max(query.shape[-1], values.shape[-1]) > WIDEST[query.dtype] or len(query) * query.shape[1] > MOST_HEADS:
        return None
    if 0 in query.shape or 0 in values.shape:
        return None
    work = kept_work(pattern, query.shape[2], keys.shape[2], causal, query.device)
    return PieceAttention.apply(query, keys, values, None if mask is None else mask.contiguous(), work)


@cache
def runs_kernels(device: torch.device) -> bool:
    """Return whether this is an NVIDIA GPU that is new enough, and Triton is installed."""
    if torch.version.hip is not None or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


def kept_work(pattern: Pattern, target: int, source: int, causal: bool, device: torch.device) -> WorkList:
    """Return the pieces of a pattern, made once for all of its class with the same options."""
    key = (type(pattern), pattern.options, target, source, causal, device)
    work = CACHED_LISTS.pop(key, None)
    if work is None:
        groups: Sequence[Sequence[AnyBlock]]
        if pattern.gathers:
            groups = [pattern.gathered_blocks(target, source, causal)]
        else:
            groups = pattern.block_groups(target, source, causal)
        with torch.inference_mode(False):  # made in validation, it may serve training
            work = work_list(groups, target, source, most_rows(pattern)).to(device)
    if pattern.options is not None:
        CACHED_LISTS[key] = work
        if len(CACHED_LISTS) > MAX_CACHED_LISTS:
            CACHED_LISTS.popitem(last=False)
    return work


def most_rows(pattern: Pattern) -> int:
    """Return the rows of a piece, a power of two: those of a tile, if there are tiles, or more would be empty."""
    return min(ROWS, padded_width(pattern.tile)) if isinstance(pattern, TiledPattern) else ROWS


@final
class PieceAttention(torch.autograd.Function):
    """softmax(query keys^T) values over the pairs of the pieces; a row in none of them is 0.

    The weight of a pair is exp(score - log-sum-exp of its whole row), so that each piece has the exact gradient of its
    pairs, given the context and the log-sum-exp of whole rows.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, work: WorkList
    ) -> Float[Tensor, "batch heads target value_width"]:
        from seq2seq_attn.attention.backend.kernel.triton_kernels import forward_kernel

        batch, heads, target, _ = query.shape
        groups, value_width = work.groups, values.shape[-1]
        dtype = query.dtype if groups == 1 else torch.float32
        context = query.new_zeros(groups, batch, heads, target, value_width, dtype=dtype)
        total = query.new_full((groups, batch, heads, target), -torch.inf, dtype=torch.float32)
        if len(work.pieces) > 0:
            forward_kernel[len(work.pieces), batch * heads](
                query, keys, values, context, total, *tables(work, mask, query),
                heads, heads // keys.shape[1], target, 0 if mask is None else mask.stride(0),
                *query.stride(), *keys.stride(), *values.stride(), context.stride(0), total.stride(0),
                **constants(query, values, work, mask),
            )  # fmt: skip
        if groups == 1:
            joined, whole = context[0], total[0]
        else:
            whole = total.logsumexp(0)
            shares = (total - whole.nan_to_num(neginf=0.0)).exp()
            joined = (context * shares[..., None]).sum(0).to(query.dtype)
        ctx.save_for_backward(query, keys, values, joined, whole)
        ctx.mask, ctx.work = mask, work
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from seq2seq_attn.attention.backend.kernel.triton_kernels import backward_kernel

        query, keys, values, context, total = ctx.saved_tensors
        work, mask = ctx.work, ctx.mask
        batch, heads, target, _ = query.shape
        upstream = upstream.contiguous()
        inner = (upstream.float() * context.float()).sum(-1)
        gradients = [torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (query, keys, values)]
        if len(work.pieces) > 0:
            backward_kernel[len(work.pieces), batch * heads](
                query, keys, values, upstream, total, inner, *gradients, *tables(work, mask, query),
                heads, heads // keys.shape[1], target, keys.shape[2], 0 if mask is None else mask.stride(0),
                *query.stride(), *keys.stride(), *values.stride(),
                **constants(query, values, work, mask),
            )  # fmt: skip
        return *(gradient.to(query.dtype) for gradient in gradients), None, None


def tables(work: WorkList, mask: Tensor | None, like: Tensor) -> tuple[Tensor, ...]:
    """Return what the kernels read of the pieces, and the mask; what there is not is any tensor, which is not read."""
    listed, pairs = work.listed_keys, work.pairs
    return (
        work.pieces,
        work.pieces if listed is None else listed,
        like if pairs is None else pairs.view(torch.uint8),
        like if mask is None else mask.view(torch.uint8),
    )


def constants(query: Tensor, values: Tensor, work: WorkList, mask: Tensor | None) -> dict[str, Any]:
    width, value_width = query.shape[-1], values.shape[-1]
    return {
        "width": width,
        "value_width": value_width,
        "WIDTH": padded_width(width),
        "VALUE_WIDTH": padded_width(value_width),
        "ROWS": work.most_rows,
        "KEYS": KEYS[query.dtype],
        "LISTED": work.listed_keys is not None,
        "MASKED": mask is not None,
    }


def padded_width(width: int) -> int:
    """Return the power of two that the kernels compute with."""
    return max(NARROWEST, 1 << (width - 1).bit_length())
