"""Linear projections and how they are drawn."""

from __future__ import annotations

import math

from torch import nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.linear import Linear


def query_key_projections(
    query_dim: int, key_dim: int, query_width: int, key_width: int, *, bias: bool
) -> tuple[nn.Linear, nn.Linear]:
    """Return the projections of queries and of keys, drawn as by Glorot and Bengio 2010, with biases of 0."""
    query, key = Linear(query_dim, query_width, bias=bias), Linear(key_dim, key_width, bias=bias)
    return drawn(query), drawn(key)


def glorot_projection(input_dim: int, output_dim: int, *, bias: bool) -> nn.Linear:
    """Return a projection drawn as by Glorot and Bengio 2010, with a bias of 0."""
    return drawn(Linear(input_dim, output_dim, bias=bias))


def drawn(projection: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(projection.weight)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
    return projection


def forget_gate(dim: int, num_heads: int, initial_gate: float, option: str) -> nn.Linear:
    """Return the projection of a token to the logit of a gate in each head, which is `initial_gate` where W x is 0.

    Args:
        option: name of `initial_gate` on the command line.

    Raises:
        UserError: for an `initial_gate` that is not between 0 and 1, or so near to them that it hardly learns.
    """
    if not 1e-6 <= initial_gate <= 1 - 1e-6:
        raise UserError(f"{option}={initial_gate} must be between 0.000001 and 0.999999; use 0.9")
    gate = drawn(Linear(dim, num_heads))
    nn.init.constant_(gate.bias, math.log(initial_gate / (1 - initial_gate)))
    return gate
