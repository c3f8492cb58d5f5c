"""Concat score: v . tanh(W [q; k]). Luong et al. 2015, section 3.1, arXiv:1508.04025."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.additive import vector_of_tanh
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.linear import Linear, linear


@final
class ConcatScore(Score):
    """One matrix over the concatenated pair: the additive score with its two matrices side by side.

    Args:
        hidden_dim: width of the hidden layer over all heads; None: `query_dim`.

    Raises:
        UserError: if the number of heads does not divide `hidden_dim`.
    """

    def __init__(
        self, *, query_dim: int, key_dim: int, num_heads: int, hidden_dim: Annotated[int | None, "[1, 16384]"]
    ) -> None:
        super().__init__()
        hidden_dim = hidden_dim or query_dim
        check_heads("attention.score.hidden_dim", hidden_dim, num_heads)
        self.num_heads, self.query_dim = num_heads, query_dim
        self.project = Linear(query_dim + key_dim, hidden_dim, bias=False)
        self.vector = nn.Parameter(torch.empty(num_heads, hidden_dim // num_heads))
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.xavier_uniform_(self.vector)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        # W [q; k] = W_left q + W_right k, so that no pair is ever written out.
        return (split_heads(linear(query, self.project.weight[:, : self.query_dim], None), self.num_heads),)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (split_heads(linear(keys, self.project.weight[:, self.query_dim :], None), self.num_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return vector_of_tanh(self.vector, query[0], keys[0])
