"""A faster `jaxtyping.jaxtyped` for the import hook of pytest: the same checks, each once for a call.

Seen in jaxtyping 0.3.11, whose private parts the check of an array is made of.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from typing import Any, NamedTuple, get_args, get_type_hints

import jaxtyping
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError
from jaxtyping._array_types import (
    _anonymous_dim,
    _anonymous_variadic_dim,
    _FixedDim,
    _MetaAbstractArray,
    _NamedDim,
    _NamedVariadicDim,
)
from jaxtyping._storage import _shape_storage, clear_treeflatten_memo
from torch import Tensor

slower = jaxtyping.jaxtyped
check_slowly = _MetaAbstractArray.__instancecheck__
check = beartype(conf=BeartypeConf(violation_type=TypeCheckError))


def jaxtyped(checked: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """Check the types and shapes of a function's arguments and result, or of what a dataclass is made of.

    jaxtyping's own decorator binds each call to its signature and checks the arguments a second time with the result:
    a quarter of the time of the tests. It still serves shapes that name an argument, and generators.
    """
    if checked is None:
        return partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(checked):
        init = vars(checked).get("__init__") if is_dataclass(checked) else None
        if init is not None and not hasattr(init, "__wrapped__"):
            checked.__init__ = jaxtyped(init, typechecker=typechecker)
        return checked
    try:
        hints = get_type_hints(checked, include_extras=True)
    except NameError:  # of a name that only a type checker imports
        return slower(checked, typechecker=typechecker)
    arrays = [array for hint in hints.values() for array in arrays_of(hint)]
    if inspect.isgeneratorfunction(checked) or any("{" in array.dim_str for array in arrays):
        return slower(checked, typechecker=typechecker)
    return with_shapes(checked, hints) if arrays else with_types(checked, hints)


def arrays_of(hint: Any) -> list[type[AbstractArray]]:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return [hint]
    return [array for part in get_args(hint) for array in arrays_of(part)]


def with_types(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    """Return the function with types checked by beartype, which reads them where they are annotated."""
    written, function.__annotations__ = function.__annotations__, hints
    checked = check(function)
    function.__annotations__ = checked.__annotations__ = written
    return checked


def with_shapes(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    """Return the function with types checked, and each name of an axis as one size within a call."""
    checked = with_types(function, hints)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        with slower("context"):
            return checked(*args, **kwargs)

    return call


def check_arrays_faster() -> None:
    _MetaAbstractArray.__instancecheck__ = is_instance  # type: ignore[method-assign]
    clear_treeflatten_memo()  # which is looked for at each check, and an exception is raised where there is none


class Axes(NamedTuple):
    """The axes of an annotation: names, sizes, None for any size; `rest` is the name of those between, or None."""

    first: tuple[str | int | None, ...]
    last: tuple[str | int | None, ...]
    variadic: bool
    rest: str | None


@cache
def axes_of(annotation: Any) -> Axes | None:
    """Return the axes of an annotation of tensors; None if it has others than of names and sizes."""
    kinds = (_NamedDim, _FixedDim, _NamedVariadicDim)
    named = [dim for dim in annotation.dims if dim not in (_anonymous_dim, _anonymous_variadic_dim)]
    if annotation.array_type is not Tensor or annotation._skip_instancecheck:
        return None
    if any(type(dim) not in kinds or dim.broadcastable or getattr(dim, "treepath", False) for dim in named):
        return None
    axes = [None if dim is _anonymous_dim else getattr(dim, "name", None) or getattr(dim, "size", None)
            for dim in annotation.dims]  # fmt: skip
    at = annotation.index_variadic
    if at is None:
        return Axes(tuple(axes), (), False, None)
    return Axes(tuple(axes[:at]), tuple(axes[at + 1 :]), True, axes[at])


@cache
def takes(annotation: Any, dtype: torch.dtype) -> bool:
    """Return whether the annotation takes the type of numbers."""
    shapeless = annotation.dtype[Tensor, "..."]
    return check_slowly(shapeless, torch.empty(0, dtype=dtype))


def is_instance(annotation: Any, value: Any) -> bool:
    """Return whether a value is of the annotation, as jaxtyping does; what does not fit is left to it."""
    if not isinstance(value, Tensor) or annotation is AbstractArray or (axes := axes_of(annotation)) is None:
        return check_slowly(annotation, value)
    stack = getattr(_shape_storage, "memo_stack", None)
    sizes, rests = stack[-1][:2] if stack else ({}, {})
    shape, begin, end = value.shape, len(axes.first), value.ndim - len(axes.last)
    if end < begin or (end > begin and not axes.variadic) or not takes(annotation, value.dtype):
        return check_slowly(annotation, value)
    found: dict[str, int] = {}
    for axis, size in zip(axes.first + axes.last, shape[:begin] + shape[end:], strict=True):
        known = size if axis is None else axis if type(axis) is int else sizes.get(axis, found.setdefault(axis, size))
        if known != size:
            return check_slowly(annotation, value)
    if axes.rest is not None:
        rest = shape[begin:end]
        if rests.setdefault(axes.rest, (False, rest)) != (False, rest):
            return check_slowly(annotation, value)
    sizes.update(found)
    return True
