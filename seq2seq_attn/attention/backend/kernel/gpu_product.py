"""softmax(query keys^T) values under a pattern on a GPU, by the Triton kernels, which never hold the scores."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.backend.kernel.tile_list import TileList, tiles_of_blocks, tiles_of_gathered
from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.block import Block
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.tiled import TiledPattern
from seq2seq_attn.nn.differentiable import differentiable_once

ROWS = 64  # of a tile, at most
KEYS = {torch.bfloat16: 64, torch.float16: 64, torch.float32: 32}  # read at once: more do not fit into every GPU
NARROWEST = 16  # head that a tensor core takes; a narrower one is filled up with zeros
WIDEST = {torch.bfloat16: 128, torch.float16: 128, torch.float32: 64}  # head that fits into 99 KiB with the rest
STAGES, STAGES_OF_WIDE, WIDE = 3, 2, 64  # keys that are read ahead; from which width on fewer, for the same reason
LEAST_CAPABILITY = (8, 0)  # of the GPU: earlier ones have no bfloat16
MOST_HEADS = 65535  # of all sentences: the most that the second dimension of a grid has
MOST_PAIRS = 2**31 - 1  # of tiles that list their keys, by which an int32 counts
CACHED_TILES: PatternCache[TileList | None] = PatternCache(lambda tiles: 0 if tiles is None else tiles.num_bytes)


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
    if query.dtype not in KEYS or not query.dtype == keys.dtype == values.dtype:
        return None
    if max(query.shape[-1], values.shape[-1]) > WIDEST[query.dtype] or len(query) * query.shape[1] > MOST_HEADS:
        return None
    if 0 in query.shape or 0 in values.shape or not runs_kernels(query.device):
        return None
    sizes = query.shape[2], keys.shape[2]
    tiles = CACHED_TILES.make_once(tiles_of, pattern, *sizes, causal, query.device)
    if tiles is None:
        return None
    return TileAttention.apply(query, keys, values, None if mask is None else mask.contiguous(), tiles)


@cache
def runs_kernels(device: torch.device) -> bool:
    """Return whether this is an NVIDIA GPU that is new enough, with a Triton that works; try a kernel to know it."""
    if torch.version.hip is not None or importlib.util.find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return False
    small = torch.zeros(1, 1, 1, NARROWEST, device=device)
    try:
        TileAttention.apply(small, small, small, None, tiles_of_blocks([[Block(0, 0, 1, 1)]], 1, 1, ROWS).to(device))
    except Exception as error:  # Triton starts a C compiler, which may fail in any way
        warnings.warn(
            f"sparse attention goes without its Triton kernels, which do not run here ({type(error).__name__}: {error})"
            "; they need a C compiler and the headers of Python",
            stacklevel=2,
        )
        return False
    return True


def tiles_of(pattern: Pattern, target: int, source: int, causal: bool, device: torch.device) -> TileList | None:
    """Return the tiles of a pattern; None: they are too many."""
    if not pattern.gathers:
        groups = pattern.block_groups(target, source, causal)
        return tiles_of_blocks(groups, target, source, most_rows(pattern)).to(device)
    blocks = pattern.gathered_blocks(target, source, causal)
    if sum(block.pairs.numel() for block in blocks) > MOST_PAIRS:
        return None
    return tiles_of_gathered(blocks, most_rows(pattern)).to(device)


def most_rows(pattern: Pattern) -> int:
    """Return the rows of a tile, a power of two: those of the pattern's own tiles, or more would be empty."""
    return min(ROWS, padded_size(pattern.tile)) if isinstance(pattern, TiledPattern) else ROWS


@final
class TileAttention(torch.autograd.Function):
    """softmax(query keys^T) values over the pairs of the tiles; a row in none of them is 0.

    The weight of a pair is exp(score - log-sum-exp of its whole row), so that each tile has the exact gradient of its
    pairs, given the context and the log-sum-exp of whole rows.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, tiles: TileList
    ) -> Float[Tensor, "batch heads target value_width"]:
        from seq2seq_attn.attention.backend.kernel.triton_kernels import forward_kernel

        batch, heads, target, _ = query.shape
        groups = () if tiles.groups == 1 else (tiles.groups,)
        dtype = torch.float32 if groups else query.dtype
        context = query.new_zeros(*groups, batch, heads, target, values.shape[-1], dtype=dtype)
        log_sum_exp = query.new_full((*groups, batch, heads, target), -torch.inf, dtype=torch.float32)
        if len(tiles.table) > 0:
            with torch.cuda.device_of(query):  # where Triton starts kernels
                forward_kernel[len(tiles.table), batch * heads](
                    query, keys, values, context, log_sum_exp, *lists(tiles, mask, query),
                    heads, heads // keys.shape[1], target, 0 if mask is None else mask.stride(0),
                    *query.stride(), *keys.stride(), *values.stride(), context.stride(0), log_sum_exp.stride(0),
                    **constants(query, values, tiles, mask),
                )  # fmt: skip
        if groups:
            of_groups, log_sum_exp = log_sum_exp, log_sum_exp.logsumexp(0)
            shares = (of_groups - log_sum_exp.nan_to_num(neginf=0.0)).exp()
            context = (context * shares[..., None]).sum(0).to(query.dtype)
        ctx.save_for_backward(query, keys, values, context, log_sum_exp)
        ctx.mask, ctx.tiles = mask, tiles
        return context

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from seq2seq_attn.attention.backend.kernel.triton_kernels import backward_kernel

        query, keys, values, context, log_sum_exp = ctx.saved_tensors
        tiles, mask = ctx.tiles, ctx.mask
        batch, heads, target, _ = query.shape
        upstream = upstream.contiguous()
        inner = (upstream.float() * context.float()).sum(-1)
        gradients = [torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (query, keys, values)]
        if len(tiles.table) > 0:
            with torch.cuda.device_of(query):
                backward_kernel[len(tiles.table), batch * heads](
                    query, keys, values, upstream, log_sum_exp, inner, *gradients, *lists(tiles, mask, query),
                    heads, heads // keys.shape[1], target, keys.shape[2], 0 if mask is None else mask.stride(0),
                    *query.stride(), *keys.stride(), *values.stride(),
                    ONE_GROUP=tiles.groups == 1, **constants(query, values, tiles, mask),
                )  # fmt: skip
        return *(gradient.to(query.dtype) for gradient in gradients), None, None


def lists(tiles: TileList, mask: Tensor | None, query: Tensor) -> tuple[Tensor, ...]:
    """Return what the kernels read besides the inputs; a missing tensor is replaced by one that they do not read."""
    listed, pairs = tiles.listed_keys, tiles.pairs
    return (
        tiles.table,
        tiles.table if listed is None else listed,
        query if pairs is None else pairs.view(torch.uint8),
        query if mask is None else mask.view(torch.uint8),
    )


def constants(query: Tensor, values: Tensor, tiles: TileList, mask: Tensor | None) -> dict[str, Any]:
    """Return what the kernels are compiled for."""
    width, value_width = query.shape[-1], values.shape[-1]
    return {
        "width": width,
        "value_width": value_width,
        "WIDTH": padded_size(width),
        "VALUE_WIDTH": padded_size(value_width),
        "ROWS": tiles.most_rows,
        "KEYS": KEYS[query.dtype],
        "LISTED": tiles.listed_keys is not None,
        "MASKED": mask is not None,
        "num_stages": STAGES if max(width, value_width) <= WIDE else STAGES_OF_WIDE,
    }


def padded_size(size: int) -> int:
    """Return the power of two that the kernels compute with."""
    return max(NARROWEST, 1 << (size - 1).bit_length())
