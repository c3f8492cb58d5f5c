"""The contract of a gate: the query decides how much of its context passes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn


class Gate(nn.Module, ABC):
    """A map of a query and its context, after the heads are joined and before the output is projected."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "batch target query_dim"], context: Float[Tensor, "batch target context_dim"]
    ) -> Float[Tensor, "batch target context_dim"]:
        """Return the gated context; a context of zeros, of a query that sees nothing, stays zeros."""
