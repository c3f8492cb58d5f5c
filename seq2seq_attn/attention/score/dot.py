"""Dot score: q . k, without a weight. Luong et al. 2015, section 3.1, arXiv:1508.04025."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import check_heads, split_heads


@final
class DotScore(Score):
    """The inner product without a parameter; each head takes a slice of the width.

    Raises:
        UserError: if queries and keys differ in width, or the number of heads does not divide it.
    """

    inner_product: ClassVar[bool] = True

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int) -> None:
        super().__init__()
        if query_dim != key_dim:
            raise UserError(
                f"dot score needs query_dim == key_dim, got {query_dim} and {key_dim}; use attention/score=general"
            )
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads = num_heads

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(query, self.num_heads),)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (split_heads(keys, self.num_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return query[0] @ keys[0].mT
