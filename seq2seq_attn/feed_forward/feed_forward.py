"""Feed-forward part: W f(V x + b) + c, position by position. Vaswani et al. 2017, section 3.3, arXiv:1706.03762."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, final

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


@final
class FeedForward(nn.Module):
    """Two linear layers with an activation between them.

    Args:
        dim: width of the input and of the output.
        ff_dim: width between the layers; None: 4 `dim`, as in the paper.
        activation: relu, or gelu (Hendrycks and Gimpel 2016, arXiv:1606.08415).
        dropout: dropout of the activation's output.

    Raises:
        UserError: if the activation is unknown.
    """

    def __init__(
        self,
        *,
        dim: int,
        ff_dim: Annotated[int | None, "[1, 16384]"],
        activation: Literal["relu", "gelu"],
        dropout: Annotated[float, "[0, 1)"],
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UserError(
                f"feed_forward.activation={activation} is unknown; choose from: {', '.join(ACTIVATIONS)}, or use "
                "feed_forward=swiglu"
            )
        ff_dim = 4 * dim if ff_dim is None else ff_dim
        self.expand, self.reduce = Linear(dim, ff_dim), Linear(ff_dim, dim)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        for linear in (self.expand, self.reduce):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        hidden = self.activation(self.expand(x))
        return self.reduce(self.dropout(hidden) if self.training else hidden)
