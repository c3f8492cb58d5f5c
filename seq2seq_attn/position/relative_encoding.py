"""The contract of a relative position: what the positions of a query and a key change in self-attention."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class RelativeEncoding(nn.Module, ABC):
    """Passed into an attention, which knows this contract and no option of it.

    There are three ways to act; each does nothing by default.

    `*batch` is `batch`, or `batch blocks` where a pattern cuts the sequence, and `*blocks` is what stands
    behind `batch` in it. Heads stand after the blocks.

    Attributes:
        option: its name on the command line.
        needs_inner_product: it turns or reads prepared queries, so the score must be their product with the keys.
        rotates, biases, adds_context: which of the three methods do something.
    """

    option: ClassVar[str]
    needs_inner_product: ClassVar[bool]
    rotates: ClassVar[bool] = False
    biases: ClassVar[bool] = False
    adds_context: bool = False

    def rotate(
        self, x: Float[Tensor, "batch heads length width"], position: Int[Tensor, "length"]
    ) -> Float[Tensor, "batch heads length width"]:
        """Queries or keys turned when they are prepared, so that a cache holds turned keys."""
        return x

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*#batch #heads #target #source"]:
        """What is added to the scores.

        Args:
            query: the prepared one, which carries its scale already; None unless an inner product is needed.
        """
        return torch.zeros([1] * (key_position.dim() + 3), device=key_position.device)

    def context(
        self,
        weights: Float[Tensor, "*batch heads target source"],
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*#batch #heads #target #width"]:
        """What is added to the context of these weights, in their dtype."""
        return weights.new_zeros([1] * weights.dim())
