"""What an encoder promises and a decoder reads: a memory of keys and values, its mask, and a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor


@final
@dataclass(frozen=True)
class Encoded:
    """One source batch, read.

    Attributes:
        keys: what attention compares a query with.
        values: what attention averages; the very same tensor as `keys` in most encoders.
        mask: True on real pieces.
        summary: one vector a sentence, from which a recurrent decoder starts.
    """

    keys: Float[Tensor, "batch source key_dim"]
    values: Float[Tensor, "batch source value_dim"]
    mask: Bool[Tensor, "batch source"]
    summary: Float[Tensor, "batch summary_dim"]
