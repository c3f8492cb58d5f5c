"""Linear projections of queries and keys."""

from __future__ import annotations

from torch import nn

from seq2seq_attn.nn.linear import Linear


def query_key_projections(
    query_dim: int, key_dim: int, query_width: int, key_width: int, *, bias: bool
) -> tuple[nn.Linear, nn.Linear]:
    """Return the projections of queries and of keys, drawn as by Glorot and Bengio 2010, with biases of 0."""
    projections = Linear(query_dim, query_width, bias=bias), Linear(key_dim, key_width, bias=bias)
    for projection in projections:
        nn.init.xavier_uniform_(projection.weight)
        if bias:
            nn.init.zeros_(projection.bias)
    return projections
