"""The contract of a pattern: who may see whom, and the exact fast ways to compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class Pattern(nn.Module, ABC):
    """`allowed` is the definition, which every faster way must equal; the others may decline by None.

    Attributes:
        sees_all: whether every key is allowed, so that nobody need ask.
        reweighs: whether `reweigh` changes anything.
    """

    sees_all: ClassVar[bool] = False
    reweighs: ClassVar[bool] = False

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
        return aligned[None]

    @abstractmethod
    def allowed(
        self, centre: Tensor, key_place: Int[Tensor, "source"]
    ) -> Bool[Tensor, "#batch target source"]:
        """Which keys a query with this centre may see."""

    def reweigh(
        self,
        weights: Float[Tensor, "batch heads target source"],
        centre: Tensor,
        key_place: Int[Tensor, "source"],
    ) -> Float[Tensor, "batch heads target source"]:
        """Change weights after the normalizer; the rows may then sum to less than 1."""
        return weights

    def product(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        values: Float[Tensor, "batch heads source value_width"],
        mask: Bool[Tensor, "batch source"] | None,
        causal: bool,
    ) -> Float[Tensor, "batch heads target value_width"] | None:
        """Context of a softmax over inner products, by a fused kernel; None: there is none."""
        return None
