"""The contract of a position encoding, which is joined to embeddings or takes part in self-attention."""

from __future__ import annotations

from abc import ABC

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.position.relative_encoding import RelativeEncoding


class PositionEncoding(nn.Module, ABC):
    """A position encoding; a subclass overrides `forward`, `relative` or neither.

    One whose relative encoding is another where no key follows its query overrides `causal_relative`, too.

    Attributes:
        max_length: number of positions that it has; None: unlimited.
    """

    max_length: int | None = None

    def __init__(self, *, dim: int) -> None:
        """Accept `dim`, the width of the embeddings, which all options take."""
        super().__init__()

    def forward(
        self, embedded: Float[Tensor, "batch length dim"], *, start: int = 0
    ) -> Float[Tensor, "batch length dim"]:
        """Return the embedded tokens with their positions, the first of which is `start`."""
        return embedded

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding | None:
        """Return a new relative encoding, with its own weights, for a layer of self-attention, or None.

        Args:
            head_dim: width of the prepared queries and keys of a head, and of its values.
        """
        return None

    def causal_relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding | None:
        """Return what `relative` does, for a layer in which no key follows its query."""
        return self.relative(num_heads=num_heads, head_dim=head_dim)
