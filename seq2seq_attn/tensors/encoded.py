"""What an encoder promises and a decoder reads: a memory of keys and values, its mask, and a summary."""

from __future__ import annotations

from dataclasses import dataclass, field
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
