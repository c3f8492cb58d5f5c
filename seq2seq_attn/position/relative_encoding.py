"""The contract of a relative position encoding: the effect of query and key positions in self-attention."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class RelativeEncoding(nn.Module, ABC):
    """A relative position encoding, which self-attention applies by three methods; each does nothing by default.

    `*batch` is `batch`, or `batch blocks` if a pattern cuts the sequence into blocks; `*blocks` is what follows
    `batch` in it. The heads dimension follows the blocks.

    Attributes:
        option: its name on the command line.
        needs_inner_product: whether it rotates or reads prepared queries, so that the score must be their inner
            product with the keys.
        rotates, biases, adds_context: which of the three methods have an effect.
        subtracts: whether no bias is above 0.
    """

    option: ClassVar[str]
    needs_inner_product: ClassVar[bool]
    rotates: ClassVar[bool] = False
    biases: ClassVar[bool] = False
    subtracts: ClassVar[bool] = False
    adds_context: bool = False

    def rotate(
        self, x: Float[Tensor, "batch heads length width"], position: Int[Tensor, " length"]
    ) -> Float[Tensor, "batch heads length width"]:
        """Return rotated queries or keys; this happens when they are prepared, so a cache contains rotated keys."""
        return x

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*#batch #heads #target #source"]:
        """Return the term to add to the scores.

        Args:
            query: the prepared query, already scaled; None unless `needs_inner_product`.
        """
        return torch.zeros([1] * (key_position.dim() + 3), device=key_position.device)

    def context(
        self,
        weights: Float[Tensor, "*batch heads target source"],
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*#batch #heads #target #width"]:
        """Return the term to add to the context, given the weights, in their dtype."""
        return weights.new_zeros([1] * weights.dim())
