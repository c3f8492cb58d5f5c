"""Fields of a JSON object of an unknown origin: each has the right type and is in range, or one sentence refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from seq2seq_attn.errors import UserError

MAX_NUMBER: Final = 2**53  # of JSON, beyond which a browser's numbers have gaps
MAX_SHOWN: Final = 60


def check_object(data: Any, keys: Sequence[str], what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UserError(f"{what} must be an object, and this one is {shown(data)}")
    for key in data:
        if key not in keys:
            raise UserError(f"{what} has no {shown(key)}; it takes: {', '.join(keys)}")
    return cast(dict[str, Any], data)


def check_int(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} is {shown(value)}, and must be a whole number from {least} to {most}")
    return value


def check_bool(value: Any, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{name}={shown(value)} must be true or false")
    return bool(value)


def check_list(value: Any, name: str, most: int) -> list[Any]:
    """Return a list of a bounded length; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{name}={shown(value)} must be a list")
    if len(value) > most:
        raise UserError(f"{name} has {len(value):,} entries, and {most:,} are the most; shorten it")
    return value


def check_choice(value: Any, name: str, choices: Mapping[str, Any] | Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{name} is {shown(value)}; choose from: {', '.join(choices)}")
    return value


def shown(value: Any) -> str:
    """Return a value of JSON, shortened, for a sentence; of a list or an object only what it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return "a number of many digits"  # Python refuses to print the longest
    if isinstance(value, int | float):
        return str(value)
    text = str(value)[: MAX_SHOWN + 1]
    return f"'{text}'" if len(text) <= MAX_SHOWN else f"'{text[:MAX_SHOWN]}...'"
