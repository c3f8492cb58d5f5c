"""The contract of a pattern: which keys a query may attend to, and the blocks that hold them."""

from __future__ import annotations

import math
import sys
from abc import ABC
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.block import Block, GatheredBlock
from seq2seq_attn.errors import UserError

AnyPosition = TypeVar("AnyPosition", int, Tensor)


class Pattern(nn.Module, ABC):
    """Which keys a query may attend to.

    `allowed` is the definition, or `select` where the choice depends on the content of queries and keys. `window` and
    `block_groups` describe the same pairs as `allowed` for faster backends.

    Attributes:
        sees_all: whether every key is allowed.
        reweighs: whether `reweigh` changes anything.
        reads_query: whether `centre` or `select` depends on the content of a query.
        selects: whether `select` is the definition; the score then has to be an inner product.
        needs_vectors: whether `select` compares the vectors of queries and keys, which the score must then have.
        scattered: whether `window` returns positions, in a tensor, and not a slice.
        gathers: whether `gathered_blocks` takes the place of `block_groups`.
        length_ratio: source positions per target position. It is a fixed number, because the length of the target is
            unknown in decoding, and 1 in self-attention.
        fused_from, blocks_from: source positions from which blocks are faster than all pairs under a mask: in the
            fused kernel, and with any other score or normalizer.
        listed_from: source positions from which reading the keys of `listed` or `list_selected` alone is faster.
        buckets_from: source positions from which scoring the keys in the `buckets` of a query alone is faster.
    """

    sees_all: ClassVar[bool] = False
    reweighs: ClassVar[bool] = False
    reads_query: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    needs_vectors: ClassVar[bool] = False
    scattered: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    length_ratio: float = 1.0
    fused_from: int = sys.maxsize
    blocks_from: int = sys.maxsize
    listed_from: int = sys.maxsize
    buckets_from: int = sys.maxsize

    def for_layer(self, layer: int) -> Pattern:
        """Return the pattern of a layer: itself, unless it is a list of patterns."""
        return self

    def centre(
        self,
        query: Float[Tensor, "batch target query_dim"],
        aligned: Int[Tensor, " target"],
        end: Int[Tensor, "#batch target"],
    ) -> Tensor:
        """Return the position at the centre of each query, (batch or 1, target): the aligned one, unless predicted."""
        return aligned_position(aligned, self.length_ratio)[None]

    @property
    def options(self) -> tuple[Hashable, ...] | None:
        """What `allowed` depends on besides its arguments, so that equal patterns share a mask; None: not cached."""
        return None

    def allowed(
        self, centre: Tensor, key_position: Int[Tensor, " source"] | Int[Tensor, "#batch target source"]
    ) -> Bool[Tensor, "#batch target source"]:
        """Return which keys, the same for all queries or those of each, a query with this centre may attend to."""
        raise NotImplementedError(f"{type(self).__name__} defines no `allowed`")

    def checked(self, centre: Tensor, key_position: Tensor) -> Bool[Tensor, "#batch target source"]:
        """Return what `allowed` does.

        Raises:
            UserError: if that is of another type or shape, which would be spread over the wrong dimensions.
        """
        allowed = self.allowed(centre, key_position)
        if allowed.dtype != torch.bool or allowed.ndim != 3:
            raise UserError(
                f"{type(self).__name__}.allowed returns {allowed.dtype} of shape {tuple(allowed.shape)}, and must "
                "return booleans of shape (batch or 1, target, source); compare centre[..., None] with key_position"
            )
        return allowed

    def select(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        visible: Bool[Tensor, "#batch #heads #target #source"] | None,
        own: Int[Tensor, " target"] | None,
    ) -> Bool[Tensor, "batch heads target source"]:
        """Return which keys each query selects. No gradient flows through the choice.

        Nothing in it may depend on the padded or the final length, or one step at a time would differ from all at
        once: what a query selects depends on itself and on the keys that it may see.

        Args:
            query, keys: as the score prepared them, and rotary positions turned them.
            visible: the keys that mask and causality let a query see; None: all.
            own: positions of the queries among the keys, in self-attention; None: in cross-attention.
        """
        raise NotImplementedError(f"{type(self).__name__} selects nothing by content; use `allowed`")

    def listed(self, centre: Tensor) -> Int[Tensor, "#batch target listed"]:
        """Return the positions that `allowed` allows each query, each once and in ascending order.

        A negative position, or one after the last key, stands for no key. Called only from `listed_from` positions on.
        """
        raise NotImplementedError(f"{type(self).__name__} lists no keys; use `allowed`")

    def list_selected(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch kv_heads source width"],
        mask: Bool[Tensor, "batch source"] | None,
        own: Int[Tensor, " target"] | None,
        *,
        causal: bool,
    ) -> Int[Tensor, "batch heads target listed"]:
        """Return the positions that `select` selects for each query, as `listed` does.

        Keys that the mask or causality hides may be among them.

        Args:
            query, keys, own: as in `select`.
            mask: True where a key may be attended to; None: everywhere.
            causal: a query attends to keys up to its own position only.
        """
        raise NotImplementedError(f"{type(self).__name__} lists no keys; use `select`")

    def buckets(self, x: Float[Tensor, "batch heads length width"]) -> Int[Tensor, "rounds batch heads length"]:
        """Return the bucket of each query or key, round by round.

        `select` then selects the keys that share a bucket with the query in any round and, in self-attention, its own.
        Called only from `buckets_from` positions on.
        """
        raise NotImplementedError(f"{type(self).__name__} has no buckets; use `select`")

    def reweigh(
        self,
        weights: Float[Tensor, "batch heads target source"],
        centre: Tensor,
        key_position: Int[Tensor, " source"] | Int[Tensor, "#batch target source"],
    ) -> Float[Tensor, "batch heads target source"]:
        """Return the weights, changed after the normalizer; a row may then sum to less than 1."""
        return weights

    def window(self, position: int, source: int, causal: bool) -> slice | Int[Tensor, " keys"] | None:
        """Return the positions of the keys that the query at `position` may attend to, or None: no window is known."""
        return None

    def block_groups(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        """Return blocks that hold every allowed pair exactly once; within a group a row is in at most one block.

        Called only from `fused_from` or `blocks_from` positions on, and where `length_ratio` is 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no blocks; use `allowed`")

    def gathered_blocks(self, target: int, source: int, causal: bool) -> Sequence[GatheredBlock]:
        """Return blocks that hold every allowed pair exactly once, in the order of their rows, which are all rows."""
        raise NotImplementedError(f"{type(self).__name__} has no blocks; use `allowed`")


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


def check_count(name: str, number: int, *, least: int) -> None:
    """Refuse an option of a pattern that is too small."""
    if number < least:
        raise UserError(f"attention.pattern.{name}={number} is too small; set it to {least} or more")


def check_length_ratio(length_ratio: float) -> None:
    """Refuse a ratio that no two lengths have."""
    if not 0 < length_ratio < math.inf:
        raise UserError(
            f"a pattern needs a length_ratio above 0, got {length_ratio}; "
            "set attention.pattern.length_ratio to source tokens per target token, or leave it at 1.0"
        )
