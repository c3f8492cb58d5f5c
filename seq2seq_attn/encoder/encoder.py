"""The contract of an encoder: an embedded source sentence to a memory and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn


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


@final
@dataclass(frozen=True)
class Encoded:
    """One source batch, read.

    Attributes:
        keys: what attention compares a query with.
        values: what attention averages; the very same tensor as `keys` in most encoders.
        mask: True on real tokens.
        summary: one vector a sentence, from which a recurrent decoder starts.
        weights: attention weights by layer, as `encoder/0`, of an encoder that attends; empty unless asked for.
        log_prob, entropy: of a normalizer that samples, summed over layers and heads, in nats.
    """

    keys: Float[Tensor, "batch source key_dim"]
    values: Float[Tensor, "batch source value_dim"]
    mask: Bool[Tensor, "batch source"]
    summary: Float[Tensor, "batch summary_dim"]
    weights: dict[str, Float[Tensor, "batch heads source source"]] = field(default_factory=dict)
    log_prob: Float[Tensor, "batch source"] | None = None
    entropy: Float[Tensor, "batch source"] | None = None
