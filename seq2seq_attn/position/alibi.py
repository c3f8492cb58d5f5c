"""ALiBi: a bias -slope * distance, with a slope for each head. Press et al. 2022, section 3, arXiv:2108.12409."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding


@final
class AlibiPosition(PositionEncoding):
    """Attention with linear biases, without parameters."""

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        return LinearBias(num_heads=num_heads)


@final
class LinearBias(RelativeEncoding):
    """-slope * |query - key|, slope 2^(-8i/heads) for head i = 1 .. heads.

    The paper is causal, so a key never follows its query; the absolute distance treats both directions of an encoder
    alike. As in the paper's code, a number of heads that is not a power of 2 gets the slopes of the power of 2 below,
    then every second slope of the power above.
    """

    option: ClassVar[str] = "alibi"
    needs_inner_product: ClassVar[bool] = False
    biases: ClassVar[bool] = True
    subtracts: ClassVar[bool] = True
    half_steps: Tensor

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.power = 1 << (num_heads.bit_length() - 1)  # the largest power of 2 that is not greater
        below, above = range(2, 2 * self.power + 1, 2), range(1, 2 * self.power, 2)
        # Integers, because casting the model to half precision would round slopes stored in a buffer.
        half_steps = torch.tensor([*below, *above][:num_heads])
        self.register_buffer("half_steps", half_steps, persistent=False)

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "1 *blocks heads target source"]:
        # Half precision cannot represent the distances of a long sentence, even if it is torch's default.
        dtype = torch.promote_types(torch.float32, torch.get_default_dtype())
        slope = torch.exp2(self.half_steps.to(dtype) * (-4 / self.power))  # (heads,)
        distance = (query_position[..., :, None] - key_position[..., None, :]).abs().to(dtype)
        return (distance[..., None, :, :] * -slope[:, None, None])[None]
