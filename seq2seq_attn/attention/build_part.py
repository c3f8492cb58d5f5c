"""Build a part with those sizes that its constructor names."""

from __future__ import annotations

from functools import partial
from typing import Any

from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments


def build_part(part: partial[Any], **sizes: Any) -> Any:
    """Build a part of a model from its partial and the sizes that its parent knows.

    Raises:
        UserError: if the configuration sets a size that the parent passes.
    """
    twice = sorted(set(part.keywords) & set(sizes))
    if twice:
        raise UserError(
            f"{part.func.__name__} gets {twice[0]} from the module around it; remove '{twice[0]}' from its options"
        )
    names = named_arguments(part)
    return part(**{name: value for name, value in sizes.items() if name in names})
