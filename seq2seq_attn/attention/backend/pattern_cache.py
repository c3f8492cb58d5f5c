"""A cache of what patterns are turned into: masks, blocks and tiles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar, final

import torch

from seq2seq_attn.attention.pattern.pattern import Pattern

MOST, MOST_BYTES = 32, 2**28  # of the values of a cache

Value = TypeVar("Value")


@final
class PatternCache(OrderedDict[Hashable, Value]):
    """Values made once for all patterns of one class with the same options; the last used at the end.

    The values used longest ago go where all together are too many or too large, but never the last one: without it,
    each step would make it again. Several threads may share a cache.

    Args:
        num_bytes: returns the size of a value.
        most: number of values.
    """

    def __init__(self, num_bytes: Callable[[Value], int], most: int = MOST) -> None:
        super().__init__()
        self.num_bytes, self.most, self.most_bytes = num_bytes, most, MOST_BYTES
        self.lock = Lock()

    def make_once(self, make: Callable[..., Value], pattern: Pattern, *arguments: Any) -> Value:
        """Return `make(pattern, *arguments)`, from the cache if it is there.

        A pattern without `options` is not cached. Nor is anything in torch.compile, which would compile anew whenever
        the cache has changed.
        """
        if pattern.options is None or torch.compiler.is_compiling():
            return make(pattern, *arguments)
        key = (type(pattern), pattern.options, arguments)
        with self.lock:
            value = self.get(key)
            if value is not None:
                self.move_to_end(key)
                return value
        with torch.inference_mode(False):  # made in validation, it may serve training
            value = make(pattern, *arguments)
        with self.lock:
            self[key] = value
            self.move_to_end(key)
            sizes = list(map(self.num_bytes, self.values()))
            while len(sizes) > 1 and (len(sizes) > self.most or sum(sizes) > self.most_bytes):
                self.popitem(last=False)
                del sizes[0]
        return value
