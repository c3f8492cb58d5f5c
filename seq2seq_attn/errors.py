"""User errors, and the one sentence that any exception becomes; a bug keeps its traceback."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, final

from seq2seq_attn.text import printable

EXIT_CODE, INTERRUPTED = 2, 130  # of a user error, and of Ctrl-C; others are what a shell reports
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# what Python says of a constructor
ABSTRACT = re.compile(
    r"Can't instantiate abstract class (\w+) (?:with|without an implementation for) abstract methods? (.+)"
)
LACKING = re.compile(r"(\w+)\.__init__\(\) missing \d+ required (?:keyword-only|positional) arguments?: (.*)")
TWICE = re.compile(r"(?:\S+\.)?(\w+)\.__init__\(\) got multiple values for keyword argument '(\w+)'")
Given = ParamSpec("Given")
Result = TypeVar("Result")


@final
class UserError(ValueError):
    """A user's mistake: the message names the constraint, the values and the way out, without control characters."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def reports_user_errors(main: Callable[Given, Result]) -> Callable[Given, Result]:
    """Wrap a `main`: a user error, or a path that cannot be read or written, is one sentence and exit code 2.

    Ctrl-C ends it without a traceback.
    """

    @wraps(main)
    def reporting(*arguments: Given.args, **options: Given.kwargs) -> Result:
        try:
            return main(*arguments, **options)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except Exception as error:
            sentence = sentence_of(error) or sentence_of_path(error)
            if sentence is None:
                raise
            print(printable(sentence), file=sys.stderr)
            sys.exit(EXIT_CODE)

    return reporting


def class_mistake(message: str) -> str | None:
    """Return the sentence for Python's message on a class that cannot be built; None for another message."""
    if abstract := ABSTRACT.match(message):
        return f"{abstract[1]} defines no {abstract[2]}, which such a part needs; add it to the class"
    if lacking := LACKING.match(message):
        return (
            f"{lacking[1]} is built without {lacking[2]}, which it needs; give it in the YAML file that chooses "
            f"{lacking[1]}"
        )
    if twice := TWICE.match(message):
        return f"{twice[1]} gets {twice[2]} from its class and from the model; name {twice[2]} in the class's __init__"
    return None


def sentence_of(error: BaseException) -> str | None:
    """Return the sentence for a user's mistake, a full disk or a path without permission; None for a bug.

    OmegaConf's errors are known by name: other environments import this module for its error alone.
    """
    for cause in causes(error):
        name, key = type(cause).__name__, getattr(cause, "full_key", None)
        if isinstance(cause, UserError):
            return str(cause)
        if name == "MissingMandatoryValue":
            key = key or one_line(str(cause)).rpartition(" ")[2]
            return f"The option '{key}' has no value; set it: `{command()} {key}=...`"
        if name.startswith("Interpolation") and key is not None:
            return f"The option '{key}' cannot be worked out: {one_line(str(cause))}"
        if name == "InstantiationException" and (sentence := class_mistake(str(cause.__cause__))):
            return sentence
        if isinstance(cause, OSError) and cause.errno in UNWRITABLE:
            if cause.filename is None:
                return f"Standard output or a file cannot be written ({cause.strerror}); make room, or write elsewhere"
            return (
                f"{cause.filename} cannot be written ({cause.strerror}); make room or make it writable, or give "
                "another path, which is hydra.run.dir for a run"
            )
        if isinstance(cause, PermissionError) and cause.filename is not None:
            return f"{cause.filename} cannot be used ({cause.strerror}); change its permissions, or give another path"
    return None


def sentence_of_path(error: BaseException) -> str | None:
    """Return the sentence for a path that cannot be read or written; None for another error."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.filename is not None:
            return f"{cause.filename} cannot be read or written ({cause.strerror}); give another path"
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what each was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def one_line(text: Any) -> str:
    """Return the first line, without its full stop."""
    return str(text).strip().partition("\n")[0].rstrip(".")


def command(name: str | None = None) -> str:
    """Return the command as it was typed, `python train.py` or `seq2seq-attn train`, or another in the same form."""
    path = Path(sys.argv[0])
    if path.parent == Path(__file__).parent / "cli":
        return f"seq2seq-attn {name or path.stem}"
    if name is not None:
        return f"python {name}.py"
    return f"python {path.name}" if path.suffix == ".py" else path.name
