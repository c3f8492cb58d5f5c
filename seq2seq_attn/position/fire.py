"""FIRE: a small network from progress within the text to a bias. Li et al. 2024, section 3.2, arXiv:2310.04418."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.linear import Linear, linear
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding


@final
class FirePosition(PositionEncoding):
    """Functional interpolation of relative positions: biases of distances that are measured by the query's position.

    Args:
        hidden_dim: width of the network's hidden layer.
        initial_rate: c before training, which stretches short distances: the greater, the more.
        initial_threshold: L before training, in tokens; up to it the position of the query changes nothing.

    Raises:
        UserError: for a number that is not positive.
    """

    def __init__(
        self,
        *,
        dim: int,
        hidden_dim: Annotated[int, "[1, 16384]"],
        initial_rate: Annotated[int | float, "(0, inf)"],
        initial_threshold: Annotated[int | float, "(0, inf)"],
    ) -> None:
        super().__init__(dim=dim)
        for name, number in (
            ("hidden_dim", hidden_dim),
            ("initial_rate", initial_rate),
            ("initial_threshold", initial_threshold),
        ):
            if number <= 0:
                raise UserError(f"position.{name}={number} must be above 0")
        self.hidden_dim, self.initial_rate, self.initial_threshold = hidden_dim, initial_rate, initial_threshold

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        return InterpolatedBias(
            num_heads=num_heads,
            hidden_dim=self.hidden_dim,
            initial_rate=self.initial_rate,
            initial_threshold=self.initial_threshold,
        )


@final
class InterpolatedBias(RelativeEncoding):
    """f(log(1 + c (i - j)) / log(1 + c max(L, i))) for query i and key j, counted from 1, with c > 0 and L > 0 learned.

    f is a network with one hidden layer and a number for each head. The paper is causal; here a key that follows its
    query has a negative argument, -log(1 + c (j - i)) / log(1 + c max(L, j)), so f tells the two directions apart.
    Arguments are between -1 and 1 for texts of any length. What is learned are the logarithms of the factors by which
    both numbers differ from their first values, so that weight decay does not change them.

    The hidden layer of all pairs is in memory while a layer trains: `hidden_dim` numbers for each pair.
    """

    option: ClassVar[str] = "fire"
    needs_inner_product: ClassVar[bool] = False
    biases: ClassVar[bool] = True

    def __init__(
        self, *, num_heads: int, hidden_dim: int, initial_rate: int | float, initial_threshold: int | float
    ) -> None:
        super().__init__()
        self.initial_rate, self.initial_threshold = initial_rate, initial_threshold
        self.log_rate, self.log_threshold = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.expand, self.reduce = Linear(1, hidden_dim), Linear(hidden_dim, num_heads)

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "1 *blocks heads target source"]:
        # Half precision cannot represent the positions of a long sentence.
        dtype = torch.promote_types(torch.float32, self.log_rate.dtype)
        rate = self.initial_rate * self.log_rate.to(dtype).exp()
        threshold = self.initial_threshold * self.log_threshold.to(dtype).exp()
        query_position, key_position = query_position[..., :, None], key_position[..., None, :]
        behind = (query_position - key_position).to(dtype)
        later = torch.maximum(query_position, key_position).to(dtype) + 1
        share = (rate * behind.abs()).log1p() / (rate * torch.maximum(later, threshold)).log1p()
        # not a matrix product, which autocast would round to half precision, and with it the positions
        column, row = self.expand.weight.to(dtype)[:, 0], self.expand.bias.to(dtype)
        hidden = torch.addcmul(row, (share * behind.sign())[..., None], column).relu()
        return linear(hidden, self.reduce.weight.to(dtype), self.reduce.bias.to(dtype)).movedim(-1, -3)[None]
