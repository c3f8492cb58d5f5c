"""The contract of a feature map: queries and keys as features, whose inner product takes the place of exp(score)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.errors import UserError


class FeatureMap(nn.Module, ABC):
    """phi_q and phi_k: the weight of a key is phi_q(q) . phi_k(k), divided by the sum over the keys of a row.

    The products are never negative. The features of a key depend on that key and its position alone, so that sums of
    them do not change with padding, other sentences or the number of steps. Features are computed in float32 or wider.

    Attributes:
        max_length: number of positions that it is defined for; None: any.
        inner_product: whether the products depend on queries and keys only by their inner product, at least in
            expectation, so that the position encoding may rotate them.
    """

    max_length: int | None = None
    inner_product: ClassVar[bool] = False

    @abstractmethod
    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, " target"]
    ) -> Float[Tensor, "batch heads target features"]:
        """Return the features of projected queries, up to a factor for each query, which the division removes."""

    @abstractmethod
    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, " source"]
    ) -> Float[Tensor, "batch heads source features"]:
        """Return the features of projected keys, up to a factor that all keys share."""


def check_max_length(feature_map: FeatureMap, length: int) -> None:
    """Check the last position plus 1, a plain number, so that no tensor is read.

    Raises:
        UserError: for a length beyond `feature_map.max_length`.
    """
    if feature_map.max_length is not None and length > feature_map.max_length:
        raise UserError(
            f"{type(feature_map).__name__} is defined for {feature_map.max_length} positions, but a sentence has "
            f"{length}; set attention.feature_map.max_length={length} or more"
        )
