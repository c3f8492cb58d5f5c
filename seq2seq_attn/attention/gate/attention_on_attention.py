"""Attention on attention: sigmoid(W [c; q] + b) * (U [c; q] + a). Huang et al. 2019, section 3.1, arXiv:1908.06954."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.gate.gate import Gate
from seq2seq_attn.nn.linear import Linear


@final
class AttentionOnAttentionGate(Gate):
    """A gate and an information vector, both linear in the context c and the query q.

    One layer computes both, the information vector first, as in the authors' code. The result takes the place of the
    context, and, in the paper, of the projected output (`attention.project_output=false`). A context of
    zeros, such as that of a query that sees nothing, stays zeros, which the paper does not say.
    """

    def __init__(self, *, query_dim: int, context_dim: int) -> None:
        super().__init__()
        self.project = Linear(context_dim + query_dim, 2 * context_dim)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(
        self, query: Float[Tensor, "batch target query_dim"], context: Float[Tensor, "batch target context_dim"]
    ) -> Float[Tensor, "batch target context_dim"]:
        passed = F.glu(self.project(torch.cat([context, query], -1)))
        return passed.masked_fill((context == 0).all(-1, keepdim=True), 0.0)
