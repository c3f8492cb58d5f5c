"""Classes and partials: what a partial is still to be given, and what a class defines anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


def named_arguments(factory: partial[Any]) -> set[str]:
    """Return the names of the arguments of a constructor or a function."""
    return set(inspect.signature(factory.func).parameters)


def redefines(kind: type, method: Callable[..., Any]) -> bool:
    """Return whether a class defines a method of its base class anew."""
    return getattr(kind, method.__name__) is not method
