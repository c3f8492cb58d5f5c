"""Sinusoidal positions: sin and cos of p / 10000^(2i/d). Vaswani et al. 2017, section 3.5, arXiv:1706.03762."""

from __future__ import annotations

from typing import Annotated, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.position.join import Join
from seq2seq_attn.position.position_encoding import PositionEncoding


@final
class SinusoidalPosition(PositionEncoding):
    """A position encoding without parameters, for sentences of any length.

    Args:
        dim: width of the embeddings; if it is odd, the last column is a sine.
        join: add, or concat followed by a projection to `dim`.
        base: base of the wavelengths, which range from 2 pi to nearly 2 pi * base.
    """

    def __init__(self, *, dim: int, join: Literal["add", "concat"], base: Annotated[float, "(0, inf)"]) -> None:
        super().__init__(dim=dim)
        self.dim, self.base = dim, base
        self.join = Join(dim=dim, join=join)
        # Not a buffer: `.to(bfloat16).float()` would leave it rounded, and DDP would copy the first rank's table
        # over tables of other lengths.
        self.table = torch.empty(0, dim)

    def forward(
        self, embedded: Float[Tensor, "batch length dim"], *, start: int = 0
    ) -> Float[Tensor, "batch length dim"]:
        return self.join(embedded, self._rows(start, start + embedded.shape[1], embedded))

    def _rows(self, start: int, stop: int, like: Tensor) -> Float[Tensor, "length dim"]:
        """Return rows of the table, which is recomputed with spare rows for a greater length, new dtype or device."""
        table = self.table
        if len(table) < stop or table.dtype != like.dtype or table.device != like.device:
            length = 1 << (max(len(table), stop) - 1).bit_length()
            with torch.inference_mode(False):  # a table made in validation must be usable in training
                table = sinusoids(length, self.dim, self.base).to(like.device, like.dtype)
            self.table = table
        return table[start:stop]


def sinusoids(length: int, dim: int, base: float) -> Float[Tensor, "length dim"]:
    """Return sin in even columns and cos in odd ones, in float64 on the CPU, as some accelerators lack float64."""
    position = torch.arange(length, dtype=torch.float64, device="cpu")
    even = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu")  # 2i
    angle = position[:, None] / base ** (even / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim]
