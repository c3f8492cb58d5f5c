"""The contract of a pattern: who may see whom, and the exact fast ways to compute it."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.backend.kernel.block_product import block_product
from seq2seq_attn.attention.backend.kernel.masked_product import masked_product
from seq2seq_attn.attention.block import Block
from seq2seq_attn.errors import UserError

AnyPosition = TypeVar("AnyPosition", int, Tensor)
# Pairs of a dense pass up to which its mask is made once and kept: a short sentence takes no longer than its mask.
MOST_KEPT = 2**19
MOST_MASKS = 32
KEPT: OrderedDict[Hashable, Tensor] = OrderedDict()  # by what they depend on, the last used at the end


class Pattern(nn.Module, ABC):
    """`allowed` is the definition, which every faster way must equal; the others may decline by None.

    Attributes:
        sees_all: whether every key is allowed, so that nobody need ask.
        reweighs: whether `reweigh` changes anything.
        reads_query: whether `centre` depends on what a query holds.
        length_ratio: source positions per target position, a fixed number: the target's length is unknown in decoding.
            It must be 1 where a sentence attends to itself.
        product_from, parts_from: source positions from which the blocks are faster than a dense pass with a mask, in
            `fused_attention` and with any other score or normalizer.
    """

    sees_all: ClassVar[bool] = False
    reweighs: ClassVar[bool] = False
    reads_query: ClassVar[bool] = False
    length_ratio: float = 1.0
    product_from: int = sys.maxsize
    parts_from: int = sys.maxsize

    def for_layer(self, layer: int) -> Pattern:
        """The pattern of a layer: itself, unless it is a list."""
        return self

    def centre(
        self,
        query: Float[Tensor, "batch target query_dim"],
        aligned: Int[Tensor, "target"],
        end: Int[Tensor, "#batch target"],
    ) -> Tensor:
        """Place around which each query looks, (batch or 1, target): the aligned one, unless it is predicted."""
        return aligned_position(aligned, self.length_ratio)[None]

    @property
    def options(self) -> tuple[Hashable, ...] | None:
        """All that `allowed` depends on but its arguments, so that equal patterns share a mask; None: none is kept."""
        return None

    @abstractmethod
    def allowed(self, centre: Tensor, key_position: Int[Tensor, "source"]) -> Bool[Tensor, "#batch target source"]:
        """Which keys a query with this centre may see."""

    def reweigh(
        self, weights: Float[Tensor, "batch heads target source"], centre: Tensor, key_position: Int[Tensor, "source"]
    ) -> Float[Tensor, "batch heads target source"]:
        """Change weights after the normalizer; the rows may then sum to less than 1."""
        return weights

    def window(self, position: int, source: int, causal: bool) -> slice | Int[Tensor, "keys"] | None:
        """Positions of the keys that the query at `position` sees, at least one; None: ask `allowed`."""
        return None

    def parts(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        """Blocks that hold every pair that is seen, once; in each part a row stands in one block at most.

        Asked for by those who have `product_from` or `parts_from` positions, and where `length_ratio` is 1.
        """
        raise NotImplementedError(f"{type(self).__name__} is not cut into blocks; ask for what is allowed")

    def fused_attention(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        values: Float[Tensor, "batch heads source value_width"],
        mask: Bool[Tensor, "batch source"] | None,
        causal: bool,
        rows_match_keys: bool = False,
    ) -> Float[Tensor, "batch heads target value_width"] | None:
        """Context of a softmax over inner products, by a fused kernel; None: there is none.

        Args:
            causal: row t sees keys 0..t only.
            itself: a row stands where its key does: what the mask hides is padding as a row too, and may be 0.
        """
        target, source = query.shape[2], keys.shape[2]
        if source >= self.product_from:
            context = block_product(query, keys, values, mask, causal, self.parts, rows_match_keys=rows_match_keys)
            if context is not None or source >= self.parts_from:
                return context
        if self.reads_query:
            return None
        keep = self.options is not None and target * source <= MOST_KEPT
        make = kept_bias if keep else pattern_bias
        bias = make(self, target, source, causal, query.dtype, query.device)
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None, None], -math.inf)
        return masked_product(query, keys, values, bias)


def pattern_bias(
    pattern: Pattern, target: int, source: int, causal: bool, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "1 1 target source"]:
    """What a dense pass adds to its scores: 0 where a row sees a key, -inf elsewhere."""
    with torch.inference_mode(False):  # made in validation, it may serve training
        rows, positions = (torch.arange(length, device=device) for length in (target, source))
        allowed = pattern.allowed(aligned_position(rows, pattern.length_ratio)[None], positions)[:, None]
        allowed = allowed & (positions <= rows[:, None]) if causal else allowed
        return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill_(~allowed, -math.inf)


def kept_bias(pattern: Pattern, *asked: Any) -> Float[Tensor, "1 1 target source"]:
    """`pattern_bias`, made once for all patterns of one class with the same options."""
    key = (type(pattern), pattern.options, asked)
    bias = KEPT.pop(key, None)
    KEPT[key] = bias = pattern_bias(pattern, *asked) if bias is None else bias
    if len(KEPT) > MOST_MASKS:
        KEPT.popitem(last=False)
    return bias


def aligned_position(position: AnyPosition, length_ratio: float) -> AnyPosition:
    """round(position * length_ratio), halves up.

    In whole numbers: torch.round goes to the even one, and a product of floats would depend on their dtype.
    """
    if length_ratio == 1:
        return position
    ratio = Fraction(length_ratio).limit_denominator(10**6)
    return (2 * ratio.numerator * position + ratio.denominator) // (2 * ratio.denominator)


def check_k(k: int) -> None:
    """Refuse a window or a stride of nothing."""
    if k < 1:
        raise UserError(f"a pattern needs k >= 1, got {k}; set attention.pattern.k=1 or more")


def check_length_ratio(length_ratio: float) -> None:
    """Refuse a ratio that no two lengths have."""
    if not 0 < length_ratio < math.inf:
        raise UserError(
            f"a pattern needs a length_ratio above 0, got {length_ratio}; "
            "set attention.pattern.length_ratio to source tokens per target token, or leave it at 1.0"
        )
