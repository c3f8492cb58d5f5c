"""The sum of what some layers say, where they say anything."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor


def total(parts: Iterable[Float[Tensor, "batch length"] | None]) -> Float[Tensor, "batch length"] | None:
    """The sum of those there are; None: there are none."""
    there = [part for part in parts if part is not None]
    return torch.stack(there).sum(0) if there else None
