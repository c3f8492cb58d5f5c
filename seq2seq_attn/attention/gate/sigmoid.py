"""Sigmoid gate: sigmoid(W q) * context. Qiu et al. 2025, section 2.2, position G1, arXiv:2505.06708."""

from __future__ import annotations

from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.gate.gate import Gate
from seq2seq_attn.nn.linear import Linear


@final
class SigmoidGate(Gate):
    """A number between 0 and 1 for each feature of the context, or one for each head. W has no bias.

    Args:
        per_head: one number for each head (the paper's headwise gate), not for each feature (its elementwise gate).
    """

    def __init__(self, *, query_dim: int, context_dim: int, num_heads: int, per_head: bool) -> None:
        super().__init__()
        self.width = context_dim // num_heads if per_head else 1  # features that one number is for
        self.project = Linear(query_dim, context_dim // self.width, bias=False)
        nn.init.xavier_uniform_(self.project.weight)

    def forward(
        self, query: Float[Tensor, "batch target query_dim"], context: Float[Tensor, "batch target context_dim"]
    ) -> Float[Tensor, "batch target context_dim"]:
        gate = self.project(query).sigmoid()
        return context * (gate if self.width == 1 else gate.repeat_interleave(self.width, -1))
