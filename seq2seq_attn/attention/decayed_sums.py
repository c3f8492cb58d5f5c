"""Sums over keys that decay with the tokens between query and key: by chunks in O(n), and for all pairs.

The decay of key j for query i is exp(sum of log f_l): over the tokens l from j + 1 to i, or, for a key after the query,
from i + 1 to j. Every sum runs over these tokens alone, so that it is exact however long the sequence is, and no
exponent is above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.nn.cached_property import CachedProperty


def decay_of_pairs(
    log_decay: Float[Tensor, "batch heads source"],
    position: Int[Tensor, " target"],
    mask: Bool[Tensor, "batch _ source"] | None,
) -> Float[Tensor, "batch heads target source"]:
    """Return the decay of all pairs, the definition.

    Args:
        position: of the queries; one after the last key is at the last key.
        mask: of each query; a token that is hidden from a query decays nothing for it.
    """
    between = log_decay.unsqueeze(2)
    if mask is not None:
        between = between.masked_fill(~mask.unsqueeze(1), 0.0)
    after = torch.arange(log_decay.shape[2], device=log_decay.device) > position.unsqueeze(1)
    return (until_end(between.masked_fill(after, 0.0)) + between.masked_fill(~after, 0.0).cumsum(-1)).exp()


def until_end(log_decay: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
    """Return the sum over the tokens after each."""
    return F.pad(log_decay, (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1)


def decayed_sum(
    keys: Float[Tensor, "*batch source features"],
    values: Float[Tensor, "*batch source width"],
    log_decay: Float[Tensor, "*batch source"],
) -> Float[Tensor, "*batch features width"]:
    """Return the sum of phi(k) v^T, decayed until the last position."""
    return (keys * until_end(log_decay).exp().unsqueeze(-1)).mT @ values


@final
@dataclass(frozen=True)
class DecayedChunks:
    """Keys and values cut into chunks of consecutive positions; only their sums are needed outside of a chunk.

    Attributes:
        keys: features, zeros where a key is hidden or there is none.
        log_decay: 0 where a key is hidden or there is none.
        before: the sum over the positions before the first chunk, decayed until the last of them; None: 0.
    """

    keys: Float[Tensor, "batch heads chunks length features"]
    values: Float[Tensor, "batch heads chunks length width"]
    log_decay: Float[Tensor, "batch heads chunks length"]
    before: Float[Tensor, "batch heads features width"] | None

    @classmethod
    def cut(
        cls,
        keys: Float[Tensor, "batch heads source features"],
        values: Float[Tensor, "batch heads source width"],
        log_decay: Float[Tensor, "batch heads source"],
        before: Float[Tensor, "batch heads features width"] | None,
        length: int,
    ) -> DecayedChunks:
        """Cut into chunks of `length` positions, or of fewer where there is only one."""
        length = min(length, keys.shape[2])
        padding = -keys.shape[2] % length
        keys, values = (F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, length)) for x in (keys, values))
        return cls(keys, values, F.pad(log_decay, (0, padding)).unflatten(2, (-1, length)), before)

    @CachedProperty
    def earlier(self) -> Float[Tensor, "batch heads chunks features width"] | None:
        """The sum over the positions before each chunk, decayed until the last of them; None: 0 for all chunks."""
        if self.keys.shape[2] == 1:
            return None if self.before is None else self.before.unsqueeze(2)
        sums = decayed_sum(self.keys, self.values, self.log_decay)
        first = torch.zeros_like(sums[:, :, 0]) if self.before is None else self.before
        return torch.stack(carried(first, sums.unbind(2)[:-1], self._decay_of_chunks[:-1]), 2)

    @CachedProperty
    def later(self) -> Float[Tensor, "batch heads chunks features width"] | None:
        """The sum over the positions after each chunk, decayed back until the last of its own; None: 0 for all."""
        if self.keys.shape[2] == 1:
            return None
        sums = (self.keys * self.log_decay.cumsum(-1).exp().unsqueeze(-1)).mT @ self.values
        first = torch.zeros_like(sums[:, :, 0])
        return torch.stack(carried(first, sums.unbind(2)[:0:-1], self._decay_of_chunks[:0:-1])[::-1], 2)

    @property
    def _decay_of_chunks(self) -> tuple[Float[Tensor, "batch heads 1 1"], ...]:
        return self.log_decay.sum(-1).exp()[..., None, None].unbind(2)

    def sums_at(
        self, query: Float[Tensor, "batch heads target features"], position: int
    ) -> Float[Tensor, "batch heads target width"]:
        """Return phi(q) times the sum over all keys, for queries that are all at one position."""
        length = self.keys.shape[3]
        chunk, row = position // length, position % length  # torch.compile has no divmod of a length
        return self._sums(query.unsqueeze(2), slice(chunk, chunk + 1), slice(row, row + 1), causal=False).squeeze(2)

    def sums(
        self, query: Float[Tensor, "batch heads target features"], first: int, causal: bool
    ) -> Float[Tensor, "batch heads target width"]:
        """Return phi(q) times the sum over the keys, for queries at the positions from `first` on.

        Args:
            causal: a query sees the keys up to its own position only.
        """
        length, target = self.keys.shape[3], query.shape[2]
        chunk, row = first // length, first % length
        query = F.pad(query, (0, 0, row, -(row + target) % length)).unflatten(2, (-1, length))
        sums = self._sums(query, slice(chunk, chunk + query.shape[2]), slice(None), causal)
        return sums.flatten(2, 3)[:, :, row : row + target]

    def _sums(
        self, query: Float[Tensor, "batch heads chunks target features"], chunks: slice, rows: slice, causal: bool
    ) -> Float[Tensor, "batch heads chunks target width"]:
        """Compute all pairs within the chunks, and those with keys of other chunks by their sums."""
        log_decay = self.log_decay[:, :, chunks]
        decay = decay_within(log_decay, causal)[..., rows, :]
        sums = ((query @ self.keys[:, :, chunks].mT) * decay) @ self.values[:, :, chunks]
        if self.earlier is not None:
            since_start = log_decay.cumsum(-1)[..., rows].exp().unsqueeze(-1)
            sums = sums + (query * since_start) @ self.earlier[:, :, chunks]
        if not causal and self.later is not None:
            sums = sums + (query * until_end(log_decay)[..., rows].exp().unsqueeze(-1)) @ self.later[:, :, chunks]
        return sums


def carried(first: Tensor, sums: Sequence[Tensor], decays: Sequence[Tensor]) -> list[Tensor]:
    """Return the decayed sum before each of the chunks, and after the last."""
    before = [first]
    for chunk_sum, decay in zip(sums, decays, strict=True):
        before.append(torch.addcmul(chunk_sum, before[-1], decay))
    return before


def decay_within(log_decay: Float[Tensor, "*batch length"], causal: bool) -> Float[Tensor, "*batch length length"]:
    """Return the decay of each pair of one chunk; causal: 0 for the keys after a query."""
    length = log_decay.shape[-1]
    after_key = torch.ones(length, length, dtype=torch.bool, device=log_decay.device).tril(-1)
    between = log_decay.unsqueeze(-1).where(after_key, 0.0).cumsum(-2)  # over the tokens between, down each column
    return between.exp().tril() if causal else (between + between.mT).exp()
