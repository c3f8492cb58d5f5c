"""Named tuples within compiled models."""

from __future__ import annotations

from typing import Any, TypeVar, cast

Values = TypeVar("Values", bound=tuple[Any, ...])


def with_fields(values: Values, **fields: Any) -> Values:
    """Return a copy of a named tuple with some fields changed, as `_replace` does, which torch 2.11 cannot compile.

    Raises:
        KeyError: if there is no such field.
    """
    names: tuple[str, ...] = type(values)._fields  # type: ignore[attr-defined]  # typing has no bound for named tuples
    if unknown := fields.keys() - set(names):
        raise KeyError(f"{type(values).__name__} has no {', '.join(sorted(unknown))}")
    return cast(Values, type(values)(*(fields.get(name, value) for name, value in zip(names, values, strict=True))))
