"""Coverage penalty: beta * sum over the source of log(min(attention received, 1)). Wu et al. 2016, eq. 14."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LEAST = 1e-6  # a position that nothing ever looked at would rank all translations that miss it alike, at -inf


def coverage_penalty(
    attention_received: Float[Tensor, "hypotheses source"], mask: Bool[Tensor, "hypotheses source"], beta: int | float
) -> Float[Tensor, "hypotheses"]:
    """At most 0: where each token of the source, its end too, got a whole token's attention or more.

    Args:
        received: attention to each position, summed over the tokens of a translation, its end too.
    """
    logs = attention_received.double().clamp(LEAST, 1).log()
    return beta * torch.where(mask, logs, 0).sum(-1)
