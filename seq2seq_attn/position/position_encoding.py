"""The contract of a position: where a token stands, joined to its embedding or told to self-attention."""

from __future__ import annotations

from abc import ABC

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.position.relative_encoding import RelativeEncoding


class PositionEncoding(nn.Module, ABC):
    """Does nothing unless an option says otherwise; an option joins positions to embeddings or has a relative part.

    Attributes:
        max_length: positions that it has; None: any.
    """

    max_length: int | None = None

    def __init__(self, *, dim: int) -> None:
        """`dim`: width of the embeddings, which every option takes, so that all are built alike."""
        super().__init__()

    def forward(
        self, embedded: Float[Tensor, "batch length dim"], *, start: int = 0
    ) -> Float[Tensor, "batch length dim"]:
        """The embedded tokens with their positions, the first of which is `start`: decoding goes on step by step."""
        return embedded

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding | None:
        """A new part with its own weights, asked for once by each layer of self-attention; None: there is none.

        Args:
            head_dim: width of a head's prepared queries and keys, and of its values.
        """
        return None
