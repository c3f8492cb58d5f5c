"""Rotary position encoding: queries and keys rotated by position. Su et al. 2021, eq. 34, arXiv:2104.09864."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding


@final
class RotaryPosition(PositionEncoding):
    """Rotation of queries and keys, whose inner product then depends on their distance alone.

    Args:
        base: base of the wavelengths, which range from 2 pi to nearly 2 pi * base.
    """

    def __init__(self, *, dim: int, base: Annotated[float, "(0, inf)"]) -> None:
        super().__init__(dim=dim)
        self.base = base

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        if head_dim % 2:
            raise UserError(
                f"position=rotary needs heads of even width, got {num_heads} of width {head_dim}; "
                "change attention.num_heads or the model's width, or use position=alibi"
            )
        return Rotation(head_dim=head_dim, base=self.base)


@final
class Rotation(RelativeEncoding):
    """Rotation of the pair (i, i + width/2) by position * base^(-2i/width).

    The paper rotates neighbours, (2i, 2i + 1). This differs only by a permutation of columns, which the projection
    learns, and splitting into halves is faster.
    """

    option: ClassVar[str] = "rotary"
    needs_inner_product: ClassVar[bool] = True
    rotates: ClassVar[bool] = True
    pair: Tensor

    def __init__(self, *, head_dim: int, base: float) -> None:
        super().__init__()
        self.base = base
        # Integers, because casting the model to half precision would round frequencies stored in a buffer.
        self.register_buffer("pair", torch.arange(head_dim // 2), persistent=False)

    def rotate(
        self, x: Float[Tensor, "batch heads length width"], position: Int[Tensor, " length"]
    ) -> Float[Tensor, "batch heads length width"]:
        wide = at_least_float32(x)
        frequency = self.base ** (self.pair.to(wide.dtype) * (-2 / x.shape[-1]))
        angle = position[:, None].to(wide.dtype) * frequency  # (length, width/2)
        cos, sin = angle.cos(), angle.sin()
        left, right = wide.chunk(2, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)
