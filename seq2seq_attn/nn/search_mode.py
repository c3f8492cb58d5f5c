"""The mode of a search, whose products need not round as those of training do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch.nn.utils import parametrize

IN_SEARCH: ContextVar[bool] = ContextVar("IN_SEARCH", default=False)


@contextmanager
def search_mode() -> Iterator[None]:
    """Compute without gradients, a normalised weight once instead of at every step, and products the fastest way.

    The fastest way may round differently than training, whose losses keep their digits on one kind of processor.
    """
    token = IN_SEARCH.set(True)
    try:
        with torch.inference_mode(), parametrize.cached():
            yield
    finally:
        IN_SEARCH.reset(token)


def rounding_may_differ() -> bool:
    """Return whether a search runs; False while torch.compile or torch.export traces."""
    return not torch.compiler.is_compiling() and IN_SEARCH.get()
