"""Attributes that are computed when first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final, overload

import torch

Value = TypeVar("Value")


@final
class CachedProperty(Generic[Value]):
    """`functools.cached_property` for tensors, without the lock of Python 3.11, which torch.compile cannot trace.

    The value is computed with gradients even if it is first read without them, as it serves later reads, too.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> CachedProperty[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> CachedProperty[Value] | Value:
        if instance is None:
            return self
        with torch.inference_mode(False):
            value = vars(instance)[self.name] = self.compute(instance)
        return value
