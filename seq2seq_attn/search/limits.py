"""Limits of the length of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, final

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from seq2seq_attn.errors import UserError

ROUNDING = 1e-9  # of a product of a length


class Lengths(NamedTuple):
    """Least and greatest number of tokens of each translation, without the end token."""

    least: Int[Tensor, " batch"]
    most: Int[Tensor, " batch"]


@final
class Limits:
    """Length limits computed for each sentence, not for its batch, so that a translation does not depend on others.

    Args:
        max_length, min_length: limits for every translation, in tokens.
        max_relative_length, max_extra_length: the translation of a source of s tokens, end token included, has at
            most max_relative_length * s + max_extra_length tokens; without a source, as in a language model, they set
            no limit.
        min_relative_length: the translation has at least min_relative_length * s tokens.

    Raises:
        UserError: if no length meets the limits.
    """

    def __init__(
        self,
        *,
        max_length: Annotated[int, "[1, 1000000]"],
        max_relative_length: Annotated[float, "[0, inf)"],
        max_extra_length: Annotated[int, "[0, 1000000]"],
        min_length: Annotated[int, "[0, 1000000]"],
        min_relative_length: Annotated[float, "[0, inf)"],
    ) -> None:
        if max_length < 1 or min_length > max_length:
            raise UserError(
                f"no length meets search.limits.max_length={max_length} and min_length={min_length}; use "
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
        """Return the limits of each sentence; the upper limit prevails over the lower one, and a prefix over both.

        Args:
            model_length: most tokens that the model can read, begin token included; None: any number.
        """
        source = source_mask.sum(-1).double()  # with float32, 1.05 times 60 is less than 63
        most = self.most(source)
        if source_mask.shape[1] == 0:
            most = torch.full_like(most, self.max_length)
        if prefixes is not None:
            most = most.maximum(torch.tensor([len(prefix) for prefix in prefixes], device=most.device))
        if model_length is not None:
            most = most.clamp(max=model_length - 1)
        least = (source * self.min_relative_length - ROUNDING).ceil().clamp(self.min_length, self.max_length).long()
        return Lengths(least.minimum(most), most)

    def most(self, source: Float64[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """Return the upper limits for sources of so many tokens, end token included."""
        most = source * self.max_relative_length + self.max_extra_length + ROUNDING
        return most.clamp(0, self.max_length).long()
