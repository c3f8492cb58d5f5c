"""The partial of a class or a function: what it is still to be given."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any


def named_arguments(factory: partial[Any]) -> set[str]:
    """Return the names of the arguments of a constructor or a function."""
    return set(inspect.signature(factory.func).parameters)
