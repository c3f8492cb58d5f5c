"""Where the rows and columns of a block of scores stand in their sentences."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor


@final
class Places:
    """Indices without content, computed when first read: a score of contents never pays for them.

    `end` is one past the last key a row may see: the sentence's length, or the row's own place + 1 when
    causal. It is never the padded length (more padding would change the result) and never the final
    length of a causal sequence (one step at a time would differ from all at once).

    `target_length` and `source_length` are one past the last place of a row and of a column: plain numbers, so
    that a score with a table of places can refuse a longer sentence without reading a tensor; None: not known.
    """

    def __init__(
        self, query: Callable[[], Tensor], key: Callable[[], Tensor], end: Callable[[], Tensor],
        *, target_length: int | None = None, source_length: int | None = None,
    ) -> None:  # fmt: skip
        self._query, self._key, self._end = query, key, end
        self.target_length, self.source_length = target_length, source_length

    @classmethod
    def dense(
        cls, *, start: int, target: int, source: int, lengths: Callable[[], Tensor], causal: bool,
        device: torch.device, window: slice | Tensor | None = None, one_place: bool = False,
    ) -> Places:  # fmt: skip
        """Rows `start .. start + target` against columns `0 .. source`, or those of them in `window`.

        `one_place`: all rows stand at `start`.
        """

        def query() -> Tensor:
            if one_place:
                return torch.full((target,), start, device=device)
            return torch.arange(start, start + target, device=device)

        def end() -> Tensor:
            return (query() + 1)[None] if causal else lengths()[:, None].expand(-1, target)

        def key() -> Tensor:
            places = torch.arange(source, device=device)
            return places if window is None else places[window]

        return cls(
            query, key, end,
            target_length=start + (1 if one_place else target), source_length=source,
        )  # fmt: skip

    @cached_property
    def query(self) -> Int[Tensor, "*blocks target"]:
        return self._query()

    @cached_property
    def key(self) -> Int[Tensor, "*blocks source"]:
        return self._key()

    @cached_property
    def end(self) -> Int[Tensor, "batch *blocks target"]:
        return self._end()
