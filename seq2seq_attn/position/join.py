"""Joining positions to embeddings: add (Vaswani et al. 2017) or concat (Collobert et al. 2011)."""

from __future__ import annotations

from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.linear import Linear, linear


@final
class Join(nn.Module):
    """`add`: e + p. `concat`: W [e; p], projected back to the width of e.

    Args:
        dim: width of an embedding, of a position vector and of the result.
        join: add or concat.

    Raises:
        UserError: if `join` is neither.
    """

    def __init__(self, *, dim: int, join: str) -> None:
        super().__init__()
        if join not in ("add", "concat"):
            raise UserError(f"position.join={join} is unknown; use position.join=add or position.join=concat")
        self.project = None
        if join == "concat":
            self.project = Linear(2 * dim, dim, bias=False)
            nn.init.xavier_uniform_(self.project.weight)

    def forward(
        self, embedded: Float[Tensor, "batch length dim"], position: Float[Tensor, "length dim"]
    ) -> Float[Tensor, "batch length dim"]:
        if self.project is None:
            return embedded + position
        # W [e; p] = W_left e + W_right p: a position is projected once for all sentences.
        left, right = self.project.weight.chunk(2, 1)
        return linear(embedded, left, None) + linear(position, right, None)
