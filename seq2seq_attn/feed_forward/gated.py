"""Gated feed-forward part, SwiGLU: W (swish(G x) * V x). Shazeer 2020, eq. 6, arXiv:2002.05202."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear


@final
class GatedFeedForward(nn.Module):
    """A gated feed-forward part without biases; G and V are stored as one matrix, and swish(z) is z sigmoid(z).

    Args:
        dim: width of the input and of the output.
        ff_dim: width between the layers; None: 8/3 `dim`, rounded up to a multiple of 8, so that the three matrices
            have as many weights as the two of width 4 `dim` without a gate.
        dropout: dropout of the gated activation.
    """

    def __init__(
        self, *, dim: int, ff_dim: Annotated[int | None, "[1, 16384]"], dropout: Annotated[float, "[0, 1)"]
    ) -> None:
        super().__init__()
        ff_dim = -(-dim // 3) * 8 if ff_dim is None else ff_dim
        self.expand, self.reduce = Linear(dim, 2 * ff_dim, bias=False), Linear(ff_dim, dim, bias=False)
        self.dropout = Dropout(dropout)
        for matrix in (*self.expand.weight.chunk(2), self.reduce.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        gate, value = self.expand(x).chunk(2, -1)
        return self.reduce(self.dropout(F.silu(gate) * value))
