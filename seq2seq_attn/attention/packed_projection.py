"""Projections of one input as one matrix: three in self-attention, two of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score


class PackedProjection(NamedTuple):
    """The projections of query, keys and values under one another, the query's with the scale of the scores."""

    weight: Float[Tensor, "rows dim"]
    bias: Float[Tensor, "rows"] | None


def join(score: Score, project_values: nn.Linear | None) -> PackedProjection | None:
    """None where there are no three of one kind."""
    projections = score.projections
    if projections is None or project_values is None:
        return None
    of_query, of_keys = projections
    return stacked((of_query, of_keys, project_values), score.scale)


def join_source(score: Score, project_values: nn.Linear | None) -> PackedProjection | None:
    """As `join`, of keys and values only, for a query that comes from elsewhere."""
    projections = score.projections
    if projections is None or project_values is None or projections[1].in_features != project_values.in_features:
        return None
    return stacked((projections[1], project_values))


def stacked(linears: Sequence[nn.Linear], scale: float = 1.0) -> PackedProjection:
    """Their weights under one another, the first times `scale`."""
    first, *others = linears
    weight = torch.cat([first.weight if scale == 1.0 else first.weight * scale, *(x.weight for x in others)])
    if first.bias is None:
        return PackedProjection(weight, None)
    bias = first.bias if scale == 1.0 else first.bias * scale
    return PackedProjection(weight, torch.cat([bias, *(x.bias for x in others)]))
