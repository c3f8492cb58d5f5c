"""A path that a user gives, as a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seq2seq_attn.tensors.error import UserError


def given_path(path: Any, option: str) -> Path:
    """The file or folder of an option, `~` being a home folder.

    Raises:
        UserError: if there is no such home folder.
    """
    try:
        return Path(str(path)).expanduser()
    except RuntimeError as error:
        raise UserError(
            f"{option}={path} names a home folder that is not there; write the path out"
        ) from error
