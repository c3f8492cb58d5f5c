"""Keys and values of one attention, prepared once and read at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.attention.room import Room
from seq2seq_attn.tensors.error import UserError

SHORT = 64  # places up to which a copy cost no more than the gaps of room, tried on two busy CPU cores with 64 rows


@final
@dataclass(frozen=True)
class Memory:
    """A value: decoding hands it on, reorders it by `select`, grows it by `append`, never changes it.

    Attributes:
        keys: what the score made of the keys; as many tensors as the score says (`Score.key_parts`).
        values: cut into heads.
        mask: True where a key may be seen, for the sentence or for each query; None: everywhere.
        room: what keys and values are views of, once they have been appended to in decoding.
    """

    keys: tuple[Float[Tensor, "batch _ source _"], ...]
    values: Float[Tensor, "batch heads source width"]
    mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None
    room: Room | None = field(default=None, repr=False, compare=False)

    @property
    def source(self) -> int:
        return self.values.shape[2]

    @property
    def one_mask(self) -> bool:
        """Whether all queries see the same keys, as far as the mask goes."""
        return self.mask is None or self.mask.dim() == 2

    @cached_property
    def visible(self) -> Bool[Tensor, "batch 1 _ source"] | None:
        """The mask with an axis for heads and one for queries."""
        if self.mask is None:
            return None
        return self.mask[:, None, None, :] if self.mask.dim() == 2 else self.mask[:, None]

    @cached_property
    def lengths(self) -> Int[Tensor, "batch"]:
        """One past the last key that any query of a sentence may see."""
        if self.mask is None or self.source == 0:
            return torch.full(self.values.shape[:1], self.source, device=self.values.device)
        seen = self.mask if self.mask.dim() == 2 else self.mask.any(1)
        last = torch.arange(1, self.source + 1, device=seen.device) * seen
        return last.amax(-1)

    def select(self, rows: Int[Tensor, "rows"]) -> Memory:
        """The sentences `rows`, in that order."""
        mask = None if self.mask is None else self.mask[rows]
        if self.room is not None:
            return self._within(self.room.select(rows, self.source), self.source, mask)
        return Memory(
            tuple(k.index_select(0, rows) for k in self.keys), self.values.index_select(0, rows), mask
        )

    def branch(self, rows: Int[Tensor, "rows"]) -> Memory:
        """As `select`, of a memory that will be appended to."""
        if self.room is not None or torch.is_grad_enabled():
            return self.select(rows)
        room = Room((*self.keys, self.values), self.source).select(rows, self.source)
        return self._within(room, self.source, None if self.mask is None else self.mask[rows])

    def at(self, window: slice | Int[Tensor, "keys"]) -> Memory:
        """Some keys only, for a query that sees no others."""
        where = window if isinstance(window, slice) else window.to(self.values.device)
        mask = None if self.mask is None else self.mask[..., where]
        return Memory(tuple(k[:, :, where] for k in self.keys), self.values[:, :, where], mask)

    def append(self, new: Memory) -> Memory:
        """More keys behind these, for causal self-attention one step at a time.

        In decoding they are written into room kept behind the others, if there is any. A short memory without room is
        copied: a step reads one without gaps faster than it saves the copy. Where gradients flow, all are copied.
        """
        mask = None if self.mask is None and new.mask is None else joined_mask(self.mask, new.mask)
        room = self.room
        fits = room is not None and room.fits(self.source, new.source)
        if torch.is_grad_enabled() or (not fits and self.source < SHORT):
            keys = tuple(torch.cat(pair, 2) for pair in zip(self.keys, new.keys, strict=True))
            return Memory(keys, torch.cat([self.values, new.values], 2), mask)
        if room is None or not fits:
            room = Room.behind((*self.keys, self.values), new.source)
        room.write((*new.keys, new.values))
        return self._within(room, self.source + new.source, mask)

    def _within(self, room: Room, source: int, mask: Tensor | None) -> Memory:
        *keys, values = room.read(source)
        return Memory(tuple(keys), values, mask, room)


def joined_mask(
    mask: Bool[Tensor, "*rows before"] | None, new: Bool[Tensor, "*rows after"] | None
) -> Bool[Tensor, "*rows before+after"]:
    if mask is None or new is None:
        raise UserError("a memory with a mask and one without cannot be joined; give both a mask, or neither")
    if mask.shape[:-1] != new.shape[:-1]:
        raise UserError(
            f"masks of the shapes {tuple(mask.shape)} and {tuple(new.shape)} cannot be joined; give both for the "
            "sentence, (batch, source), and say by causal=True what a query may not see"
        )
    return torch.cat([mask, new], -1)
