"""The three projections of self-attention as one matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score


class Joined(NamedTuple):
    """The projections of query, keys and values under one another, the query's with the scale of the scores."""

    weight: Float[Tensor, "rows dim"]
    bias: Float[Tensor, "rows"] | None


def join(score: Score, project_values: nn.Linear | None) -> Joined | None:
    """None where there are no three of one kind."""
    projections = score.projections
    if projections is None or project_values is None:
        return None
    of_query, of_keys = projections
    scale, linears = score.scale, (of_keys, project_values)
    weight = torch.cat([of_query.weight * scale, *(linear.weight for linear in linears)])
    if of_query.bias is None:
        return Joined(weight, None)
    return Joined(weight, torch.cat([of_query.bias * scale, *(linear.bias for linear in linears)]))
