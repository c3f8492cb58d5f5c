"""The contract of a decay: how much of the keys before it a token keeps, and how much of its own key it adds."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn


class Decay(nn.Module, ABC):
    """f_l of each token and head: the weight of key j for query i is multiplied by the f_l of the tokens j + 1 to i.

    The f of a token depends on that token alone, so that sums do not change with padding, other sentences or the number
    of steps. It is computed in float32 or wider.
    """

    @abstractmethod
    def forward(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source"], Float[Tensor, "batch heads source"] | None]:
        """Return log f, at most 0, and the factor of the weight of each key, which is positive; None: 1.

        The delta rule reads log f alone: the strength with which a token writes takes the place of the factor.
        """
