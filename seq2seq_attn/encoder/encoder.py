"""The contract of an encoder: an embedded source sentence to a memory and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.tensors.encoded import Encoded


class Encoder(nn.Module, ABC):
    """Says the widths of what it gives, so that any decoder can be built upon it.

    Attributes:
        key_dim, value_dim, summary_dim: widths of the fields of `Encoded`.
    """

    key_dim: int
    value_dim: int
    summary_dim: int

    @abstractmethod
    def forward(
        self,
        embedded: Float[Tensor, "batch source input_dim"],
        mask: Bool[Tensor, "batch source"],
        *,
        need_weights: bool = False,
    ) -> Encoded:
        """Read a batch; what stands where `mask` is False changes nothing.

        need_weights: also give the attention weights of an encoder that attends.
        """
