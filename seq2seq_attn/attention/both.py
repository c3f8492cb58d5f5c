"""What two masks allow together."""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor


def both(left: Bool[Tensor, "..."] | None, right: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """What two masks both allow, where None allows everything."""
    if left is None:
        return right
    return left if right is None else left & right
