"""Attributes that are computed when first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final, overload

import torch
from torch import Tensor

Value = TypeVar("Value")


@final
class CachedProperty(Generic[Value]):
    """`functools.cached_property` for tensors, without the lock of Python 3.11, which torch.compile cannot trace.

    The value is computed with gradients even if it is first read without them, as it serves later reads, too; from
    tensors that were made in inference mode, which can have none, it is computed without.
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
        if torch.is_grad_enabled() or not may_have_gradients(instance):
            value = self.compute(instance)
        else:
            with torch.inference_mode(False):
                value = self.compute(instance)
        vars(instance)[self.name] = value
        return value


def may_have_gradients(instance: object) -> bool:
    """Return whether an object holds tensors, and none that was made in inference mode."""
    if torch.compiler.is_compiling():  # it cannot trace `is_inference`
        return True
    tensors = [x for x in vars(instance).values() if isinstance(x, Tensor)]
    return bool(tensors) and not any(x.is_inference() for x in tensors)
