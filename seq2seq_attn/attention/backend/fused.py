"""Attention by fused kernels, which never hold the scores: softmax(query keys^T) values under a pattern.

Scaled dot-product attention of torch, for a dense mask or block by block; kernel/ for blocks on a CPU or a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.backend.blocks import flatten_blocks, gather, gathered_blocks, to_rows
from seq2seq_attn.attention.backend.dense import allowed_pairs
from seq2seq_attn.attention.backend.kernel.block_product import block_product
from seq2seq_attn.attention.backend.kernel.gpu_product import gpu_product
from seq2seq_attn.attention.backend.kernel.torch_product import torch_product
from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request
from seq2seq_attn.attention.block import AnyBlock
from seq2seq_attn.attention.normalizer.masked import masked_sink_softmax
from seq2seq_attn.attention.normalizer.normalizer import Normalizer
from seq2seq_attn.attention.normalizer.softmax import SoftmaxNormalizer
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position
from seq2seq_attn.factory import redefines
from seq2seq_attn.nn.heads import matmul_groups
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.search_mode import rounding_may_differ

SOFTMAX = SoftmaxNormalizer()
MAX_CACHED_PAIRS = 2**19  # of one mask: a short sentence takes no longer than its mask
CACHED_MASKS: PatternCache[Tensor] = PatternCache(lambda mask: mask.nbytes)
FEW_QUERIES = 8  # of a sentence, up to which plain operations are faster: measured on one CPU core, 8 to 100 keys


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where the weights are no plain softmax of inner products, or no kernel knows which are allowed."""
    memory, pattern = request.memory, parts.pattern
    if not parts.normalizer.is_softmax:
        scaled = as_softmax(parts, request)
        return None if scaled is None else attend(*scaled)
    if parts.fusible and pattern.selects:
        allowed = allowed_pairs(parts, request, request.positions(), None)
        sink = parts.normalizer.sink_logits(memory.keys[0])
        return HeadOutput(masked_product(request.prepared[0], memory.keys[0], memory.values, allowed, sink))
    if not (parts.fusible and memory.one_mask and request.square):
        return None
    if not (pattern.sees_all or request.starts_at_zero):
        return None
    context = fused_attention(
        pattern,
        request.prepared[0],
        memory.keys[0],
        memory.values,
        memory.mask,
        causal=request.triangular,
        rows_match_keys=request.rows_match_keys,
        sink=parts.normalizer.sink_logits(memory.keys[0]),
    )
    return None if context is None else HeadOutput(context)


def as_softmax(parts: Parts, request: Request) -> tuple[Parts, Request] | None:
    """Return parts with a softmax, and a request with queries that have the same weights; None: there are none."""
    memory = request.memory
    if not (redefines(type(parts.normalizer), Normalizer.query_scale) and parts.inner_products):
        return None
    if not (parts.pattern.sees_all and memory.one_mask and request.starts_at_zero and request.square):
        return None
    query = at_least_float32(request.prepared[0])
    seen = query.new_ones(1, request.source, dtype=torch.bool) if memory.mask is None else memory.mask
    counts = seen.cumsum(-1)[:, :, None] if request.triangular else seen.sum(-1)[:, None, None]
    scale = parts.normalizer.query_scale(counts.clamp(min=1)[:, None].to(query.dtype))
    prepared = (query * scale).to(request.prepared[0].dtype)
    return parts._replace(normalizer=SOFTMAX), request._replace(prepared=(prepared,))


def fused_attention(
    pattern: Pattern,
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    *,
    causal: bool,
    rows_match_keys: bool,
    sink: Float[Tensor, "#heads"] | None = None,
) -> Float[Tensor, "batch heads target value_width"] | None:
    """Return the context of a softmax over inner products; None: blocks of scores serve better.

    Args:
        causal: row t attends to keys 0..t only.
        rows_match_keys: a row that the mask hides as a key is padding, and may be 0.
        sink: score of one more key, whose value is 0; the kernels of blocks do not serve it.
    """
    if pattern.sees_all:
        return full_attention(query, keys, values, mask, causal, sink)
    target, source = query.shape[2], keys.shape[2]
    if sink is not None and source >= pattern.blocks_from:
        return None
    if sink is None and source >= pattern.fused_from:
        context = gpu_product(query, keys, values, mask, pattern, causal)
        if context is not None:
            return context
        if pattern.gathers:
            return portable_product(query, keys, values, mask, gathered_blocks(pattern, target, source, causal))
        context = block_product(
            query, keys, values, mask, causal, pattern.block_groups, rows_match_keys=rows_match_keys
        )
        if context is not None:
            return context
        groups = pattern.block_groups(target, source, causal)
        if len(groups) == 1:
            return portable_product(query, keys, values, mask, groups[0])
        if source >= pattern.blocks_from:
            return None  # joining groups takes the log-sum-exps of rows, which no public call returns on every device
    if pattern.reads_query or redefines(type(pattern), Pattern.centre):  # it needs the query, or the length
        return None
    arguments = target, source, causal, query.dtype, query.device
    short = target * source <= MAX_CACHED_PAIRS
    bias = CACHED_MASKS.make_once(pattern_bias, pattern, *arguments) if short else pattern_bias(pattern, *arguments)
    if mask is not None:
        bias = bias.masked_fill(~mask[:, None, None], -math.inf)
    return masked_product(query, keys, values, bias, sink)


def portable_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    blocks: Sequence[AnyBlock],
) -> Float[Tensor, "batch heads target value_width"]:
    """Attend block by block on any device and under any mask, each row with a copy of the keys of its tile.

    Args:
        blocks: they hold each allowed pair once, and a row is in at most one of them; others are 0.
    """
    device, contexts = query.device, []
    for block in blocks:
        rows, columns = block.row_positions(device), block.key_positions(device)
        (q,), (k, v) = gather((query,), rows), gather((keys, values), columns)
        allowed = None
        if mask is not None or not block.uniform:
            allowed = block.seen_in_tile(device)[None, :, None]
            allowed = allowed if mask is None else allowed & mask[:, columns][:, :, None, None]
            allowed = allowed.expand(*q.shape[:2], -1, -1, -1).flatten(0, 1)
        context = torch_product(
            q.flatten(0, 1),  # the kernels of a GPU take four dimensions
            k.flatten(0, 1),
            v.flatten(0, 1),
            allowed,
            causal=allowed is None and block.causal,
        )
        contexts.append(flatten_blocks(context.unflatten(0, q.shape[:2]), values.shape[3]))
    return to_rows(torch.cat(contexts, 2), blocks, query.shape[2])


def full_attention(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    mask: Bool[Tensor, "batch source"] | None,
    causal: bool,
    sink: Float[Tensor, "#heads"] | None = None,
) -> Float[Tensor, "batch heads target value_width"]:
    """Attend without a pattern."""
    if causal and mask is None and sink is None:
        return torch_product(query, keys, values, causal=True)
    allowed = None if mask is None else mask.unsqueeze(1).unsqueeze(2)
    if causal:
        length = keys.shape[2]
        past = torch.ones(1, 1, length, length, dtype=torch.bool, device=keys.device).tril()
        allowed = past if allowed is None else allowed & past
    return masked_product(query, keys, values, allowed, sink)


def masked_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    allowed: Bool[Tensor, "#batch #heads #target source"] | Float[Tensor, "#batch 1 #target source"] | None,
    sink: Float[Tensor, "#heads"] | None = None,
) -> Float[Tensor, "batch heads target value_width"]:
    """Attend under a mask, boolean or of 0 and -inf; a row that sees nothing gets zeros, not NaN."""
    if (
        values is keys
        and query.shape[1] > keys.shape[1] == 1
        and sink is None
        and (allowed is None or same_keys(allowed))
    ):
        # Latents, which all heads see alike: as rows of one head, they share them without a copy.
        rows = masked_product(query.flatten(1, 2).unsqueeze(1), keys, values, allowed)
        return rows.squeeze(1).unflatten(1, query.shape[1:3])
    plain = (allowed is None or allowed.dtype == torch.bool) and few_of_search(query)
    if sink is not None:
        return (plain_sink_product if plain else sink_product)(query, keys, values, allowed, sink)
    if plain and plain_is_faster(query, keys):
        return masked_softmax(query @ keys.mT, allowed) @ values
    return torch_product(query, keys, values, allowed)


def same_keys(allowed: Bool[Tensor, "_ _ _ source"] | Float[Tensor, "_ _ _ source"]) -> bool:
    """Return whether all queries of a sentence, in all heads, may see the same keys."""
    return allowed.shape[1:3] == (1, 1)


def plain_sink_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    allowed: Bool[Tensor, "#batch #heads #target source"] | None,
    sink: Float[Tensor, "#heads"],
) -> Float[Tensor, "batch heads target value_width"]:
    """Attend with one more column of scores instead of one more key, for which all keys and values would be copied."""
    weights = masked_sink_softmax(matmul_groups(query, keys.mT), allowed, sink[:, None, None])
    return matmul_groups(weights, values)


def sink_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch kv_heads source width"],
    values: Float[Tensor, "batch kv_heads source value_width"],
    allowed: Bool[Tensor, "#batch #heads #target source"] | Float[Tensor, "#batch 1 #target source"] | None,
    sink: Float[Tensor, "#heads"],
) -> Float[Tensor, "batch heads target value_width"]:
    """Attend to one more key, whose score is the sink's and whose value is 0."""
    shared = query.shape[1] // keys.shape[1]
    if shared > 1:  # a sink is the key of one head of queries
        keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
    batch, heads, _, width = query.shape
    # One more column makes the inner product of a query of 1 and a key of 0, and with the key of the sink its logit.
    # A product, not padding: the gradient of padding is a slice, of whose strides DDP warns where there is one head.
    last = F.pad(sink.new_ones(1), (width, 0))
    sink_key = (sink[:, None, None] * last).expand(batch, heads, 1, width + 1)
    keys = torch.cat([F.pad(keys, (0, 1)), sink_key], 2)
    if allowed is not None:
        allowed = F.pad(allowed, (0, 1), value=allowed.dtype == torch.bool)
    wide_values = F.pad(values, (0, 1, 0, 1))  # most often as wide as the keys then, and not copied again
    return torch_product(F.pad(query, (0, 1), value=1.0), keys, wide_values, allowed)[..., :-1]


def few_of_search(query: Float[Tensor, "batch heads target width"]) -> bool:
    """Return whether these are few queries of a search, of a type in which scores lose no digits."""
    return rounding_may_differ() and query.dtype in (torch.float32, torch.float64) and query.shape[2] <= FEW_QUERIES


def plain_is_faster(
    query: Float[Tensor, "batch heads target width"], keys: Float[Tensor, "batch kv_heads source width"]
) -> bool:
    """Return whether plain operations are faster than the fused kernel for few queries: on a CPU."""
    # the products would copy shared heads of keys, and keys whose heads are neighbours in memory
    return query.is_cpu and query.shape[1] == keys.shape[1] and keys.stride(1) >= keys.stride(2)


def pattern_bias(
    pattern: Pattern, target: int, source: int, causal: bool, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "1 1 target source"]:
    """Return 0 where the pattern allows a pair, -inf elsewhere."""
    rows, positions = (torch.arange(length, device=device) for length in (target, source))
    allowed = pattern.checked(aligned_position(rows, pattern.length_ratio)[None], positions)[:, None]
    allowed = allowed & (positions <= rows[:, None]) if causal else allowed
    return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill_(~allowed, -math.inf)
