"""The contract of an encoder, which maps embedded source sentences to keys, values and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """An encoder, which states the widths of its outputs, so that any decoder can be built to read them.

    Attributes:
        key_dim, value_dim, summary_dim: widths of the fields of `Encoded`.
        state_dims: widths of the tensors of `Encoded.states`, by layer; empty: the encoder has no states.
    """

    key_dim: int
    value_dim: int
    summary_dim: int
    state_dims: tuple[tuple[int, ...], ...] = ()

    @abstractmethod
    def forward(
        self,
        embedded: Float[Tensor, "batch source input_dim"],
        mask: Bool[Tensor, "batch source"],
        *,
        need_weights: bool = False,
    ) -> Encoded:
        """Encode a batch; positions where `mask` is False have no influence.

        Args:
            need_weights: also return attention weights, if the encoder has attention.
        """


@final
@dataclass(frozen=True)
class Encoded:
    """The output of an encoder.

    Attributes:
        keys: vectors that attention compares with a query.
        values: vectors that attention averages; in most encoders the same tensor as `keys`.
        mask: True at real tokens.
        summary: one vector per sentence, from which a recurrent decoder starts.
        weights: attention weights by layer, such as `encoder/0`, as distributions (`Attended.distribution`); empty
            unless requested.
        log_prob, entropy: those of a sampling normalizer, summed over layers and heads, in nats.
        states: last states of each layer of a recurrent encoder, the two directions joined; empty in other encoders.
    """

    keys: Float[Tensor, "batch source key_dim"]
    values: Float[Tensor, "batch source value_dim"]
    mask: Bool[Tensor, "batch source"]
    summary: Float[Tensor, "batch summary_dim"]
    weights: dict[str, Float[Tensor, "batch heads source source"]] = field(default_factory=dict)
    log_prob: Float[Tensor, "batch source"] | None = None
    entropy: Float[Tensor, "batch source"] | None = None
    states: tuple[tuple[Float[Tensor, "batch _"], ...], ...] = ()
