"""Additive score: v . tanh(W q + U k). Bahdanau et al. 2015, A.1.2, arXiv:1409.0473."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.tanh import tanh


@final
class AdditiveScore(Score):
    """A perceptron with one hidden layer, divided among the heads.

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
        self.num_heads = num_heads
        self.project_query = Linear(query_dim, hidden_dim, bias=False)
        self.project_key = Linear(key_dim, hidden_dim, bias=False)
        self.vector = nn.Parameter(torch.empty(num_heads, hidden_dim // num_heads))
        nn.init.xavier_uniform_(self.project_query.weight)
        nn.init.xavier_uniform_(self.project_key.weight)
        nn.init.xavier_uniform_(self.vector)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(self.project_query(query), self.num_heads),)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (split_heads(self.project_key(keys), self.num_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return vector_of_tanh(self.vector, query[0], keys[0])


def vector_of_tanh(
    vector: Float[Tensor, "heads width"],
    query: Float[Tensor, "*batch heads target width"],
    keys: Float[Tensor, "*batch heads source width"],
    term: Float[Tensor, "*batch heads target source width"] | None = None,
) -> Float[Tensor, "*batch heads target source"]:
    """Return v . tanh(query + key) of every pair, or v . tanh(query + key + term)."""
    hidden = query.unsqueeze(-2) + keys.unsqueeze(-3)  # (*batch, heads, target, source, width)
    hidden = tanh(hidden if term is None else hidden + term)
    if vector.shape[0] == 1:
        return hidden @ vector[0]
    return (hidden @ vector[:, None, :, None]).squeeze(-1)
