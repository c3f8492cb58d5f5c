"""The one kind of error that a command prints as a sentence, without a traceback."""

from typing import final


@final
class UserError(ValueError):
    """A user's mistake: the message says the constraint, the values and the way out."""
