"""Linear projections of one input computed as one product: three in self-attention, two of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.projected import ProjectedScore
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.factory import redefines
from seq2seq_attn.nn.linear import is_plain, linear
from seq2seq_attn.nn.precision import as_autocast

MIN_PACKED_ROWS = 64  # from here on one product of packed projections is as fast as one stored matrix


@final
class PackedProjection(NamedTuple):
    """The projections of queries, keys and values stacked; the query's rows carry the scale of the scores.

    Attributes:
        widths: number of rows of each projection.
    """

    weight: Float[Tensor, "rows dim"]
    bias: Float[Tensor, " rows"] | None
    widths: tuple[int, ...]

    def project(self, x: Float[Tensor, "batch length dim"]) -> tuple[Float[Tensor, "batch length _"], ...]:
        """Return each projection of the input."""
        return linear(x, self.weight, self.bias).split(self.widths, -1)


def pack(score: Score, project_values: nn.Linear | None) -> PackedProjection | None:
    """Stack the projections of queries, keys and values; None where one of them is not linear."""
    if project_values is None or not is_projected(score):
        return None
    return stack((*score.projections, project_values), score.scale)


def is_projected(score: Score) -> TypeGuard[ProjectedScore]:
    """Return whether a score prepares queries and keys as `ProjectedScore` does, by its two projections alone."""
    prepared = ProjectedScore.prepare_query, ProjectedScore.prepare_keys
    return isinstance(score, ProjectedScore) and not any(redefines(type(score), one) for one in prepared)


def pack_source(score: Score, project_values: nn.Linear | None) -> PackedProjection | None:
    """Stack the projections of keys and values of one input; None where one of them is not linear."""
    if project_values is None or not is_projected(score):
        return None
    return stack((score.projections[1], project_values))


def stack(linears: Sequence[nn.Linear], scale: float = 1.0) -> PackedProjection | None:
    """Stack weights and biases, the first multiplied by `scale`; None where a module does more than multiply and add.

    They are cast here once for autocast, which would cast them again at each step.
    """
    if not all(map(is_plain, linears)):
        return None
    first, *others = linears
    widths = tuple(linear.out_features for linear in linears)
    weight = torch.cat([first.weight if scale == 1.0 else first.weight * scale, *(x.weight for x in others)])
    if first.bias is None:
        return PackedProjection(as_autocast(weight), None, widths)
    bias = first.bias if scale == 1.0 else first.bias * scale
    return PackedProjection(as_autocast(weight), as_autocast(torch.cat([bias, *(x.bias for x in others)])), widths)
