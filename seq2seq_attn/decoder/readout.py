"""What a recurrent decoder gives to the output layer: the deep output of Bahdanau et al. 2015, A.2.2, or the state."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.nn.linear import linear
from seq2seq_attn.nn.tanh import tanh


@final
class Readout(nn.Linear):
    """tanh(W f) or the maxout of W f, with f the state, the context and the embedded token.

    Args:
        pool: numbers of which maxout keeps the largest; 1: tanh instead. Goodfellow et al. 2013, arXiv:1302.4389.
    """

    def __init__(self, in_features: int, out_features: int, *, pool: int) -> None:
        super().__init__(in_features, out_features * pool)
        self.pool = pool

    def forward(self, features: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out"]:
        projected = linear(features, self.weight, self.bias)
        return tanh(projected) if self.pool == 1 else projected.unflatten(-1, (-1, self.pool)).amax(-1)


def build_readout(kind: Literal["tanh", "maxout", "linear"], in_features: int, out_features: int) -> Readout | None:
    """Return the layer between a decoder and the output layer.

    Args:
        kind: `tanh`; `maxout` of pairs, as in the paper; `linear`: none, the output layer reads the state alone.
    """
    if kind == "linear":
        return None
    return Readout(in_features, out_features, pool=2 if kind == "maxout" else 1)
