"""The one kind of error that a command prints as a sentence, without a traceback."""

from typing import final

from seq2seq_attn.tensors.printable import printable


@final
class UserError(ValueError):
    """A user's mistake: the message says the constraint, the values and the way out, without control characters."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
