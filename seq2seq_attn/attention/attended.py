"""What attention found."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.memory import Memory


class Attended(NamedTuple):
    """What attention found: the context of each query and, if asked for, the weights before dropout.

    `log_prob` and `entropy` are those of a normalizer that samples, summed over heads, in nats. `memory` is what
    a sequence that attends to itself hands on to its next step.
    """

    context: Float[Tensor, "batch target context_dim"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None
    memory: Memory | None = None


def apart(attended: Attended) -> Attended:
    """Hypotheses that attended side by side, at one place of their sentence, as rows of one query each."""
    _, weights, log_prob, entropy, memory = attended
    return Attended(
        attended.context.flatten(0, 1).unsqueeze(1),
        None if weights is None else weights.transpose(1, 2).flatten(0, 1).unsqueeze(2),
        None if log_prob is None else log_prob.reshape(-1, 1),
        None if entropy is None else entropy.reshape(-1, 1),
        memory,
    )
