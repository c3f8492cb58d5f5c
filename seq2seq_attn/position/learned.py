"""Learned position encoding: a vector for each position. Gehring et al. 2017, section 3.1, arXiv:1705.03122."""

from __future__ import annotations

from typing import Annotated, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.join import Join
from seq2seq_attn.position.position_encoding import PositionEncoding


@final
class LearnedPosition(PositionEncoding):
    """A table of learned vectors; a position that no training sentence reaches keeps its random vector.

    Args:
        dim: width of the embeddings.
        join: add, or concat followed by a projection to `dim`.
        max_length: number of positions, in tokens.

    Raises:
        UserError: if a sentence is longer than `max_length`.
    """

    def __init__(self, *, dim: int, join: Literal["add", "concat"], max_length: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__(dim=dim)
        self.max_length = max_length
        self.join = Join(dim=dim, join=join)
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=dim**-0.5)  # like the embeddings

    def forward(
        self, embedded: Float[Tensor, "batch length dim"], *, start: int = 0
    ) -> Float[Tensor, "batch length dim"]:
        stop = start + embedded.shape[1]
        if stop > len(self.table):
            raise UserError(
                f"position.max_length={len(self.table)} is too small for a sentence of {stop} tokens; "
                "increase it and train again, or use position=sinusoidal"
            )
        return self.join(embedded, self.table[start:stop])
