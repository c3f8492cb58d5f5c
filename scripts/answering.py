"""What every script does around its task, as every command: a user's mistake is one sentence and exit code 2.

Programs that a benchmark starts in other environments use it too, so of the package only its error is known, by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

MISTAKE = 2  # exit code, as of a command
Given = ParamSpec("Given")
Result = TypeVar("Result")


def answering(main: Callable[Given, Result]) -> Callable[Given, Result]:
    """A script's `main` that ends so upon a UserError, or a path that cannot be read or written."""

    @wraps(main)
    def answered(*arguments: Given.args, **options: Given.kwargs) -> Result:
        try:
            return main(*arguments, **options)
        except Exception as error:
            said = sentence(error)
            if said is None:
                raise
            print(said, file=sys.stderr)
            sys.exit(MISTAKE)

    return answered


def sentence(error: BaseException) -> str | None:
    """What to say; None for a bug, which keeps its traceback."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "UserError":
            return str(cause)
        if isinstance(cause, OSError) and cause.filename is not None:
            return f"{cause.filename} cannot be read or written ({cause.strerror}); give another path"
        cause = cause.__cause__
    return None
