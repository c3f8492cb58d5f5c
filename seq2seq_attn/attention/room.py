"""Tensors with room behind them, so that a decoding step appends one place without copying those before it."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

BLOCK = 32  # places, the least that is added


@final
class Room:
    """Buffers that only grow: what was written is never overwritten, so views of it stay values.

    A memory may write behind its end only while nobody has (`fits`); whoever comes second copies.
    """

    def __init__(self, buffers: tuple[Tensor, ...], filled: int) -> None:
        self.buffers, self.filled, self.copied = buffers, filled, filled

    @classmethod
    def behind(cls, tensors: tuple[Tensor, ...], more: int) -> Room:
        """Copies with room for `more` places and for as many again as there are, along dimension 2."""
        filled = tensors[0].shape[2]
        room = cls(tuple(enlarged(x, filled + more + max(BLOCK, filled), len(x)) for x in tensors), filled)
        for buffer, tensor in zip(room.buffers, tensors, strict=True):
            buffer[:, :, :filled] = tensor
        return room

    def fits(self, start: int, more: int) -> bool:
        """Whether `more` places can be written from `start` on."""
        return start == self.filled and start + more <= self.buffers[0].shape[2]

    def write(self, tensors: tuple[Tensor, ...]) -> None:
        end = self.filled + tensors[0].shape[2]
        for buffer, tensor in zip(self.buffers, tensors, strict=True):
            buffer[:, :, self.filled : end] = tensor
        self.filled = end

    def read(self, end: int) -> tuple[Tensor, ...]:
        """Views of the places before `end`."""
        return tuple(buffer[:, :, :end] for buffer in self.buffers)

    def select(self, rows: Int[Tensor, "rows"], end: int) -> Room:
        """Copies of some rows, with room behind `end` for as many places as came since the last copy.

        A beam copies at every step, and reads a buffer without gaps twice as fast.
        """
        more = max(1, end - self.copied)
        buffers = tuple(enlarged(x, end + more, len(rows)) for x in self.buffers)
        for new, old in zip(buffers, self.read(end), strict=True):
            torch.index_select(old, 0, rows, out=new[:, :, :end])
        return Room(buffers, end)


def enlarged(tensor: Tensor, length: int, rows: int) -> Tensor:
    _, heads, _, width = tensor.shape
    return tensor.new_empty(rows, heads, length, width)
