"""Keys and values of one attention, prepared once and read at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError

SHORT = 64  # positions up to which a copy cost no more than the gaps of room, tried on two busy CPU cores with 64 rows


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
    room: GrowableBuffer | None = field(default=None, repr=False, compare=False)

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
        return Memory(tuple(k.index_select(0, rows) for k in self.keys), self.values.index_select(0, rows), mask)

    def branch(self, rows: Int[Tensor, "rows"]) -> Memory:
        """As `select`, of a memory that will be appended to."""
        if self.room is not None or torch.is_grad_enabled():
            return self.select(rows)
        room = GrowableBuffer((*self.keys, self.values), self.source).select(rows, self.source)
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
            room = GrowableBuffer.behind((*self.keys, self.values), new.source)
        room.write((*new.keys, new.values))
        return self._within(room, self.source + new.source, mask)

    def _within(self, room: GrowableBuffer, source: int, mask: Tensor | None) -> Memory:
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


BLOCK = 32  # positions, the least that is added


@final
class GrowableBuffer:
    """Buffers that only grow: what was written is never overwritten, so views of it stay values.

    A memory may write behind its end only while nobody has (`fits`); whoever comes second copies.
    """

    def __init__(self, buffers: tuple[Tensor, ...], filled: int) -> None:
        self.buffers, self.filled, self.copied = buffers, filled, filled

    @classmethod
    def behind(cls, tensors: tuple[Tensor, ...], more: int) -> GrowableBuffer:
        """Copies with room for `more` positions and for as many again as there are, along dimension 2."""
        filled = tensors[0].shape[2]
        room = cls(tuple(enlarged(x, filled + more + max(BLOCK, filled), len(x)) for x in tensors), filled)
        for buffer, tensor in zip(room.buffers, tensors, strict=True):
            buffer[:, :, :filled] = tensor
        return room

    def fits(self, start: int, more: int) -> bool:
        """Whether `more` positions can be written from `start` on."""
        return start == self.filled and start + more <= self.buffers[0].shape[2]

    def write(self, tensors: tuple[Tensor, ...]) -> None:
        end = self.filled + tensors[0].shape[2]
        for buffer, tensor in zip(self.buffers, tensors, strict=True):
            buffer[:, :, self.filled : end] = tensor
        self.filled = end

    def read(self, end: int) -> tuple[Tensor, ...]:
        """Views of the positions before `end`."""
        return tuple(buffer[:, :, :end] for buffer in self.buffers)

    def select(self, rows: Int[Tensor, "rows"], end: int) -> GrowableBuffer:
        """Copies of some rows, with room behind `end` for as many positions as came since the last copy.

        A beam copies at every step, and reads a buffer without gaps twice as fast.
        """
        more = max(1, end - self.copied)
        buffers = tuple(enlarged(x, end + more, len(rows)) for x in self.buffers)
        for new, old in zip(buffers, self.read(end), strict=True):
            torch.index_select(old, 0, rows, out=new[:, :, :end])
        return GrowableBuffer(buffers, end)


def enlarged(tensor: Tensor, length: int, rows: int) -> Tensor:
    _, heads, _, width = tensor.shape
    return tensor.new_empty(rows, heads, length, width)


@final
class QueryKeyPositions:
    """Indices without content, computed when first read: a score of contents never pays for them.

    `end` is one past the last key a row may see: the sentence's length, or the row's own position + 1 when
    causal. It is never the padded length (more padding would change the result) and never the final
    length of a causal sequence (one step at a time would differ from all at once).

    `target_length` and `source_length` are one past the last position of a row and of a column: plain numbers, so
    that a score with a table of positions can refuse a longer sentence without reading a tensor; None: not known.
    """

    def __init__(
        self,
        query: Callable[[], Tensor],
        key: Callable[[], Tensor],
        end: Callable[[], Tensor],
        *,
        target_length: int | None = None,
        source_length: int | None = None,
    ) -> None:
        self._query, self._key, self._end = query, key, end
        self.target_length, self.source_length = target_length, source_length

    @classmethod
    def dense(
        cls,
        *,
        start: int,
        target: int,
        source: int,
        lengths: Callable[[], Tensor],
        causal: bool,
        device: torch.device,
        window: slice | Tensor | None = None,
        same_position: bool = False,
    ) -> QueryKeyPositions:
        """Rows `start .. start + target` against columns `0 .. source`, or those of them in `window`.

        `same_position`: all rows stand at `start`.
        """

        def query() -> Tensor:
            if same_position:
                return torch.full((target,), start, device=device)
            return torch.arange(start, start + target, device=device)

        def end() -> Tensor:
            return (query() + 1)[None] if causal else lengths()[:, None].expand(-1, target)

        def key() -> Tensor:
            positions = torch.arange(source, device=device)
            return positions if window is None else positions[window]

        return cls(query, key, end, target_length=start + (1 if same_position else target), source_length=source)

    @cached_property
    def query(self) -> Int[Tensor, "*blocks target"]:
        return self._query()

    @cached_property
    def key(self) -> Int[Tensor, "*blocks source"]:
        return self._key()

    @cached_property
    def end(self) -> Int[Tensor, "batch *blocks target"]:
        return self._end()


class Attended(NamedTuple):
    """What attention found: the context of each query and, if asked for, the weights before dropout.

    `log_prob` and `entropy` are those of a normalizer that samples, summed over heads, in nats. `memory` is what
    a sequence that attends to itself hands on to its next step.
    """

    context: Float[Tensor, "batch target context_dim"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None
    memory: Memory | None = None


def flatten_hypotheses(attended: Attended) -> Attended:
    """Hypotheses that attended side by side, at one position of their sentence, as rows of one query each."""
    _, weights, log_prob, entropy, memory = attended
    return Attended(
        attended.context.flatten(0, 1).unsqueeze(1),
        None if weights is None else weights.transpose(1, 2).flatten(0, 1).unsqueeze(2),
        None if log_prob is None else log_prob.reshape(-1, 1),
        None if entropy is None else entropy.reshape(-1, 1),
        memory,
    )


def sum_present(parts: Iterable[Float[Tensor, "batch length"] | None]) -> Float[Tensor, "batch length"] | None:
    """The sum of those there are; None: there are none."""
    there = [part for part in parts if part is not None]
    return torch.stack(there).sum(0) if there else None
