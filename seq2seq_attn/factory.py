"""Classes and partials: what a partial is still to be given, a part built of it, and what a class defines anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from seq2seq_attn.errors import UserError


def named_arguments(factory: partial[Any]) -> set[str]:
    """Return the names of the arguments of a constructor or a function, and of the bases that `**` passes them to."""
    kind = factory.func
    if not inspect.isclass(kind) or kind.__init__ is object.__init__:  # a function, or a class made by __new__
        return set(inspect.signature(kind).parameters)
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            arguments = inspect.signature(vars(base)["__init__"]).parameters.values()
            names |= {one.name for one in arguments if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
            if not any(one.kind is one.VAR_KEYWORD for one in arguments):
                break
    return names - {"self"}


def redefines(kind: type, method: Callable[..., Any]) -> bool:
    """Return whether a class defines a method of its base class anew."""
    return getattr(kind, method.__name__) is not method


def build_part(part: partial[Any], **sizes: Any) -> Any:
    """Build a part of a model from its partial and the sizes that its parent knows.

    Raises:
        UserError: if the configuration sets a size that the parent passes, or the class does not initialise its base.
    """
    twice = sorted(set(part.keywords) & set(sizes))
    if twice:
        raise UserError(
            f"{part.func.__name__} gets {twice[0]} from the module around it; remove '{twice[0]}' from its options"
        )
    names = named_arguments(part)
    try:
        built = part(**{name: value for name, value in sizes.items() if name in names})
    except AttributeError as error:
        if "before Module.__init__() call" not in str(error):
            raise
        raise not_initialised(part) from error
    if isinstance(built, nn.Module) and "_modules" not in vars(built):
        raise not_initialised(part)
    return built


def not_initialised(part: partial[Any]) -> UserError:
    return UserError(f"{part.func.__name__}.__init__ does not call super().__init__(); call it first")
