"""A padded batch of sentence pairs with its lengths and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@final
@dataclass
class Batch:
    """The sentence pairs of one step; masks are True at real tokens.

    Not frozen, because Lightning assigns the fields of a copy if `precision` converts inputs.

    Attributes:
        source: token ids, each sentence followed by the end token.
        target_input: what the decoder reads: the begin token, then the sentence.
        target_output: what it must predict: the sentence, then the end token.
        source_lengths, target_lengths: in tokens, end token included.
        index: row of each pair in its split, to restore the order of results.
        links: True where a token of `target_output` is linked to one of the source; None: there are no links.
    """

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, " batch"]
    source_mask: Bool[Tensor, "batch source"]
    target_input: Int[Tensor, "batch target"]
    target_output: Int[Tensor, "batch target"]
    target_lengths: Int[Tensor, " batch"]
    target_mask: Bool[Tensor, "batch target"]
    index: Int[Tensor, " batch"]
    links: Bool[Tensor, "batch target source"] | None = None

    def __len__(self) -> int:
        return self.source.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return self.apply(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        return self.apply(lambda tensor: tensor.pin_memory())

    def apply(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with every tensor changed."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items() if tensor is not None})
