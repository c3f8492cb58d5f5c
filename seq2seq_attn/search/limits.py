"""How short and how long a translation may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.errors import UserError


class Lengths(NamedTuple):
    """Fewest and most tokens of each translation, end token not counted."""

    least: Int[Tensor, "batch"]
    most: Int[Tensor, "batch"]


@final
class Limits:
    """Limits of each sentence itself, not of its batch, so that a translation does not depend on its neighbours.

    Args:
        max_length, min_length: tokens of any translation.
        max_relative_length, max_extra_length: a source of s tokens, end token included, is translated by at most
            max_relative_length * s + max_extra_length.
        min_relative_length: and by at least min_relative_length * s.
    """

    def __init__(
        self,
        *,
        max_length: int,
        max_relative_length: float,
        max_extra_length: int,
        min_length: int,
        min_relative_length: float,
    ) -> None:
        if max_length < 1 or min_length > max_length:
            raise UserError(
                f"search.limits.max_length={max_length} and min_length={min_length} leave no length; use "
                "max_length >= 1 and min_length <= max_length"
            )
        self.max_length, self.min_length = max_length, min_length
        self.max_relative_length, self.max_extra_length = max_relative_length, max_extra_length
        self.min_relative_length = min_relative_length

    def __call__(
        self,
        source_mask: Bool[Tensor, "batch source"],
        model_length: int | None,
        prefixes: Sequence[Sequence[int]] | None,
    ) -> Lengths:
        """Where two limits cross, the upper one holds; a prefix may be longer than either.

        Args:
            model_length: most tokens that the model reads, of which the begin token is one; None: any.
        """
        source = source_mask.sum(-1)
        most = (source * self.max_relative_length + self.max_extra_length).long().clamp(max=self.max_length)
        if prefixes is not None:
            most = most.maximum(torch.tensor([len(prefix) for prefix in prefixes], device=most.device))
        if model_length is not None:
            most = most.clamp(max=model_length - 1)
        least = (source * self.min_relative_length).ceil().long().clamp(min=self.min_length)
        return Lengths(least.minimum(most), most)
