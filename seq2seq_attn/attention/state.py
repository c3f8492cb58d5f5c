"""What passes between an attention layer and its callers: prepared keys and values, positions, and the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.key_mask import check_sequences
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.cached_property import CachedProperty
from seq2seq_attn.nn.named_tuple import with_fields
from seq2seq_attn.nn.precision import at_least_float32

SHORT = 64  # positions up to which copying is as fast as reading a buffer with gaps: 64 rows on two CPU cores


class AttentionMemory(ABC):
    """What an attention layer prepared of keys and values: the cache of decoding. Immutable."""

    @property
    @abstractmethod
    def source(self) -> int:
        """Number of positions."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " rows"]) -> AttentionMemory:
        """Return the sentences `rows`, in that order."""

    @abstractmethod
    def branch(self, rows: Int[Tensor, " rows"]) -> AttentionMemory:
        """Return the sentences `rows` of a memory that will be appended to."""

    @abstractmethod
    def append(self, new: Any) -> AttentionMemory:
        """Append keys and values that the same layer prepared."""


@final
@dataclass(frozen=True)
class Memory(AttentionMemory):
    """Prepared keys and values: the key-value cache of decoding. Immutable; `select` and `append` return another.

    Attributes:
        keys: the keys as the score prepared them, `Score.key_parts` tensors.
        values: cut into heads. Where they are `keys[0]` itself, as latents are (`LatentScore`), they are stored once.
        mask: True where a key may be attended to, for the sentence or for each query; None: everywhere.
        buffer: holds the storage of keys and values once decoding has appended to them.
        running_sums: how many of the last tensors of `keys` are sums over the keys up to each (`Score.running_sums`).
        ends: `lengths` of the whole where this is the part of some queries; None: those of the mask.
    """

    keys: tuple[Float[Tensor, "batch _ source _"], ...]
    values: Float[Tensor, "batch heads source width"]
    mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None
    buffer: GrowableBuffer | None = field(default=None, repr=False, compare=False)
    running_sums: int = 0
    ends: Int[Tensor, " batch"] | None = None

    @property
    def source(self) -> int:
        return self.values.shape[2]

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """The keys and values, each tensor once."""
        return self.keys if self.keys and self.values is self.keys[0] else (*self.keys, self.values)

    @property
    def one_mask(self) -> bool:
        """Whether the mask is the same for all queries."""
        return self.mask is None or self.mask.dim() == 2

    @CachedProperty
    def visible(self) -> Bool[Tensor, "batch 1 _ source"] | None:
        """The mask with an axis for heads and one for queries."""
        if self.mask is None:
            return None
        return self.mask[:, None, None, :] if self.mask.dim() == 2 else self.mask[:, None]

    @CachedProperty
    def lengths(self) -> Int[Tensor, " batch"]:
        """One past the last key that any query of a sentence may attend to."""
        if self.ends is not None:
            return self.ends
        if self.mask is None or self.source == 0:
            return torch.full(self.values.shape[:1], self.source, device=self.values.device)
        visible = self.mask if self.mask.dim() == 2 else self.mask.any(1)
        ends = torch.arange(1, self.source + 1, device=visible.device) * visible
        return ends.amax(-1)

    def select(self, rows: Int[Tensor, " rows"]) -> Memory:
        """Return the sentences `rows`, in that order."""
        mask = None if self.mask is None else self.mask[rows]
        if self.buffer is not None:
            return self._within(self.buffer.select(rows, self.source), self.source, mask)
        return self._with(tuple(x.index_select(0, rows) for x in self.stored), mask)

    def branch(self, rows: Int[Tensor, " rows"]) -> Memory:
        """Return the sentences `rows` of a memory that will be appended to."""
        if self.buffer is not None or torch.is_grad_enabled():
            return self.select(rows)
        buffer = GrowableBuffer(self.stored, self.source).select(rows, self.source)
        return self._within(buffer, self.source, None if self.mask is None else self.mask[rows])

    def at(self, window: slice | Int[Tensor, " keys"]) -> Memory:
        """Return the keys in a window, for a query that attends to no others."""
        index = window if isinstance(window, slice) else window.to(self.values.device)
        mask = None if self.mask is None else self.mask[..., index]
        if isinstance(index, slice):
            return self._with(tuple(x[:, :, index] for x in self.stored), mask)
        return self._with(tuple(x.index_select(2, index) for x in self.stored), mask)

    def for_queries(self, first: int, last: int) -> Memory:
        """Return the memory with the mask of the queries from `first` to before `last`, where each has its own."""
        if self.mask is None or self.mask.dim() == 2 or self.mask.shape[1] == 1:
            return self
        return replace(self, mask=self.mask[:, first:last], ends=self.lengths)

    def append(self, new: Memory) -> Memory:
        """Append keys and values, for causal self-attention one step at a time.

        In decoding they are written into the free positions of the buffer, if it has any. A short memory is copied
        instead, because a step reads one without gaps faster. Where gradients flow, memories are always copied.
        """
        mask = None if self.mask is None and new.mask is None else append_mask(self.mask, new.mask)
        buffer = self.buffer
        if self.running_sums and self.source > 0:
            pairs = zip(self.keys[-self.running_sums :], new.keys[-self.running_sums :], strict=True)
            sums = (after + before[:, :, -1:] for before, after in pairs)
            new = replace(new, keys=(*new.keys[: -self.running_sums], *sums))
        fits = buffer is not None and buffer.fits(self.source, new.source)
        if torch.is_grad_enabled() or (not fits and self.source < SHORT):
            return self._with(tuple(torch.cat(pair, 2) for pair in zip(self.stored, new.stored, strict=True)), mask)
        if buffer is None or not fits:
            buffer = GrowableBuffer.with_free_positions(self.stored, new.source)
        buffer.write(new.stored)
        return self._within(buffer, self.source + new.source, mask)

    def _within(self, buffer: GrowableBuffer, source: int, mask: Tensor | None) -> Memory:
        return self._with(buffer.read(source), mask, buffer)

    def _with(self, stored: tuple[Tensor, ...], mask: Tensor | None, buffer: GrowableBuffer | None = None) -> Memory:
        """Return what `stored` tensors hold, as this memory does."""
        keys = stored[: len(self.keys)]
        values = stored[-1] if len(stored) > len(keys) else keys[0]
        return Memory(keys, values, mask, buffer, self.running_sums)


def append_mask(
    mask: Bool[Tensor, "*rows before"] | None, new: Bool[Tensor, "*rows after"] | None
) -> Bool[Tensor, "*rows before+after"]:
    if mask is None or new is None:
        raise UserError("a memory with a mask and one without cannot be joined; give both a mask, or neither")
    if mask.dim() > 2 or new.dim() > 2:  # each is of its own queries
        raise UserError(
            f"masks of the shapes {tuple(mask.shape)} and {tuple(new.shape)} cannot be joined; give both for the "
            "sentence, (batch, source), and say by causal=True what a query may not see"
        )
    return torch.cat([mask, new], -1)


LEAST_GROWTH = 32  # positions of a buffer


@final
class GrowableBuffer:
    """Tensors with free positions after the filled ones. Filled positions are never overwritten.

    So views of them stay valid. A memory may write after its end only if no other memory has (`fits`); else it copies.

    Attributes:
        filled: how many positions are.
        copied: how many were when the buffer was made.
    """

    def __init__(self, buffers: tuple[Tensor, ...], filled: int) -> None:
        self.buffers, self.filled, self.copied = buffers, filled, filled

    @classmethod
    def with_free_positions(cls, tensors: tuple[Tensor, ...], more: int) -> GrowableBuffer:
        """Copy tensors, with free positions in dimension 2 for `more` and for as many again as there are."""
        filled = tensors[0].shape[2]
        grown = cls(tuple(enlarged(x, filled + more + max(LEAST_GROWTH, filled), len(x)) for x in tensors), filled)
        for buffer, tensor in zip(grown.buffers, tensors, strict=True):
            buffer[:, :, :filled] = tensor
        return grown

    def fits(self, start: int, more: int) -> bool:
        """Return whether `more` positions can be written from `start` on."""
        return start == self.filled and start + more <= self.buffers[0].shape[2]

    def write(self, tensors: tuple[Tensor, ...]) -> None:
        end = self.filled + tensors[0].shape[2]
        for buffer, tensor in zip(self.buffers, tensors, strict=True):
            buffer[:, :, self.filled : end] = tensor
        self.filled = end

    def read(self, end: int) -> tuple[Tensor, ...]:
        """Return views of the positions before `end`."""
        return tuple(buffer[:, :, :end] for buffer in self.buffers)

    def select(self, rows: Int[Tensor, " rows"], end: int) -> GrowableBuffer:
        """Copy some rows, with free positions after `end` for as many as were written since the last copy.

        Beam search copies at every step, and reads a buffer without gaps twice as fast.
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
    """Positions of queries and keys, computed when first read, so that a score of contents never pays for them.

    `end` is one past the last key that a row may attend to: the length of the sentence, or the position of the row
    plus 1 when causal. It is never the padded length (more padding would change the result) and never the final
    length of a causal sequence (one step at a time would differ from all at once).

    `target_length` and `source_length` are one past the last position of a row and of a column: plain numbers, so
    that a score with a table of positions can refuse a longer sentence without reading a tensor.

    `rows` and `columns` are `query` and `key` as slices, so that a table is read without a copy; None: they are no
    consecutive positions, or it is not known.
    """

    def __init__(
        self,
        query: Callable[[], Tensor],
        key: Callable[[], Tensor],
        end: Callable[[], Tensor],
        *,
        target_length: int,
        source_length: int,
        rows: slice | None = None,
        columns: slice | None = None,
    ) -> None:
        self._query, self._key, self._end = query, key, end
        self.target_length, self.source_length = target_length, source_length
        self.rows, self.columns = rows, columns

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
        """Return rows `start .. start + target` and columns `0 .. source`, or those of them in `window`.

        Args:
            same_position: all rows are at position `start`.
        """
        query = partial(query_positions, start, target, same_position=same_position, device=device)
        # Lambdas, for a `def` in here would be type-checked anew in every call of a test.
        return cls(
            query,
            lambda: torch.arange(source, device=device)[slice(None) if window is None else window],
            lambda: (query() + 1)[None] if causal else lengths()[:, None].expand(-1, target),
            target_length=start + (1 if same_position else target),
            source_length=source,
            rows=None if same_position else slice(start, start + target),
            columns=slice(source) if window is None else window if isinstance(window, slice) else None,
        )

    @CachedProperty
    def query(self) -> Int[Tensor, "*blocks target"]:
        return self._query()

    @CachedProperty
    def key(self) -> Int[Tensor, "*blocks source"]:
        return self._key()

    @CachedProperty
    def end(self) -> Int[Tensor, "batch *blocks target"]:
        return self._end()


def query_positions(start: int, length: int, *, same_position: bool, device: torch.device) -> Int[Tensor, " length"]:
    """Return `start .. start + length`, or `start` for each query at one position."""
    if same_position:
        return torch.full((length,), start, device=device)
    return torch.arange(start, start + length, device=device)


class Attended(NamedTuple):
    """The output of an attention layer.

    Attributes:
        context: of each query.
        weights: before dropout; None: not asked for.
        log_prob, entropy: of a normalizer that samples, summed over heads, in nats.
        memory: of self-attention, the past of its next step.
        history: for the next step, of a layer that reads the weights of the steps before.
        sums_to_one: whether the weights of a row are a distribution over the keys.
        alignment_loss: of the links of a guided head; None: it has no guide.
    """

    context: Float[Tensor, "batch target context_dim"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None
    memory: AttentionMemory | None = None
    history: History | None = None
    sums_to_one: bool = True
    alignment_loss: Float[Tensor, "batch target"] | None = None

    @property
    def distribution(self) -> Float[Tensor, "batch heads target source"] | None:
        """The weights as a distribution over the keys, from which entropies, maps and alignments are made.

        Where rows do not sum to 1, or weights are negative, it is the positive part of a row divided by its sum; a row
        without a positive weight is all 0.
        """
        if self.weights is None or self.sums_to_one:
            return self.weights
        positive = at_least_float32(self.weights).clamp(min=0)
        total = positive.sum(-1, keepdim=True)
        return (positive / total.masked_fill(total == 0, 1.0)).to(self.weights.dtype)


def by_sentence(
    query: Float[Tensor, "rows target query_dim"], sentences: int
) -> tuple[Float[Tensor, "sentences _ query_dim"], bool]:
    """Return the queries with the hypotheses of a sentence side by side, and whether there are any.

    Raises:
        UserError: for rows that are neither those of the sentences nor hypotheses of one query each.
    """
    check_sequences(query)
    rows, target = query.shape[:2]
    if rows == sentences:
        return query, False
    if target != 1 or sentences == 0 or rows % sentences:
        raise UserError(
            f"{rows} rows of {target} queries do not go with a memory of {sentences} sentences; give as many rows as "
            "it has sentences, or several times as many of one query each"
        )
    return query.reshape(sentences, -1, query.shape[2]), True


def flatten_hypotheses(attended: Attended) -> Attended:
    """Turn hypotheses that were queries of one sentence into rows of one query each."""
    context, weights, log_prob, entropy, *_ = attended
    return with_fields(
        attended,
        context=context.flatten(0, 1).unsqueeze(1),
        weights=None if weights is None else weights.transpose(1, 2).flatten(0, 1).unsqueeze(2),
        log_prob=None if log_prob is None else log_prob.reshape(-1, 1),
        entropy=None if entropy is None else entropy.reshape(-1, 1),
        history=None if attended.history is None else attended.history.by_hypothesis(),
    )


def join_steps(steps: Sequence[Attended]) -> Attended:
    """Return the outputs of several steps as one, with the history of the last."""
    joined: dict[str, Any] = {
        name: None if getattr(steps[0], name) is None else torch.cat([getattr(step, name) for step in steps], dim)
        for name, dim in (("context", 1), ("weights", 2), ("log_prob", 1), ("entropy", 1), ("alignment_loss", 1))
    }
    return with_fields(steps[-1], **joined)


def sum_present(parts: Iterable[Float[Tensor, "batch length"] | None]) -> Float[Tensor, "batch length"] | None:
    """Sum the tensors that are not None; None if all are."""
    present = [part for part in parts if part is not None]
    return torch.stack(present).sum(0) if present else None


@final
class AttendedLayers:
    """What is read of the attentions of several layers once all are computed: no context, keys or values.

    Attributes:
        weights: by slot and layer, such as `cross/0`, as distributions (`Attended.distribution`).
        alignment_loss: that of the guided head; None: there is no guide.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self.alignment_loss: Tensor | None = None
        self._log_probs: list[Tensor | None] = []
        self._entropies: list[Tensor | None] = []

    def add(self, slot: str, attended: Attended) -> None:
        """Read the output of a layer."""
        distribution = attended.distribution
        if distribution is not None:
            self.weights[slot] = distribution
        if attended.alignment_loss is not None:
            self.alignment_loss = attended.alignment_loss
        self._log_probs.append(attended.log_prob)
        self._entropies.append(attended.entropy)

    @property
    def log_prob(self) -> Float[Tensor, "batch length"] | None:
        """The sum over layers; None: no normalizer samples."""
        return sum_present(self._log_probs)

    @property
    def entropy(self) -> Float[Tensor, "batch length"] | None:
        """The sum over layers, as `log_prob`."""
        return sum_present(self._entropies)
