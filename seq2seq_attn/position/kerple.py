"""KERPLE: a bias that falls with the logarithm of the distance. Chi et al. 2022, Corollary 1, arXiv:2205.09921."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding


@final
class KerplePosition(PositionEncoding):
    """Learned logarithmic biases, the variant of the paper that serves longest texts best."""

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        return LogarithmicBias(num_heads=num_heads)


@final
class LogarithmicBias(RelativeEncoding):
    """-r1 log(1 + r2 |query - key|), with an r1 > 0 and an r2 > 0 for each head.

    The constant of the kernel is left out: a softmax over the keys cancels it. Both numbers are exponentials of what is
    learned; the paper's code learns the numbers and raises them to 0.01 where they are below. Before training r1 is
    uniform in (0, 2) and r2 in (0, 1), as there.
    """

    option: ClassVar[str] = "kerple"
    needs_inner_product: ClassVar[bool] = False
    biases: ClassVar[bool] = True
    subtracts: ClassVar[bool] = True

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        least = 0.01
        self.log_factors = nn.Parameter(torch.empty(num_heads).uniform_(least, 2).log())  # of r1
        self.log_rates = nn.Parameter(torch.empty(num_heads).uniform_(least, 1).log())  # of r2

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "1 *blocks heads target source"]:
        # Half precision cannot represent the distances of a long sentence.
        dtype = torch.promote_types(torch.float32, self.log_rates.dtype)
        factor, rate = (x.to(dtype).exp()[:, None, None] for x in (self.log_factors, self.log_rates))
        distance = (query_position[..., :, None] - key_position[..., None, :]).abs().to(dtype)
        return (-factor * (rate * distance[..., None, :, :]).log1p())[None]
