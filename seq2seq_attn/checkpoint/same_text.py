"""Runs that are used together: their languages and how their text is cleaned, compared."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq_attn.data.cleaning import text_options
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import typed
from seq2seq_attn.text import printable

UNNAMED = "text"  # the language of data=text that is not given
RENAMED = "languages that a run only names wrongly are corrected in config.json of seq2seq-attn export safetensors"


class Direction(NamedTuple):
    """The languages of a run.

    Attributes:
        name: of the run, in messages.
        source: None, of a language model.
        is_reversed: the run is used from its target to its source.
    """

    name: str
    source: str | None
    target: str
    is_reversed: bool = False

    def __str__(self) -> str:
        if self.source is None:
            return f"{self.name} is a language model of {self.target}"
        return f"{self.name} translates from {self.source} to {self.target}"

    def as_used(self) -> tuple[str | None, str]:
        """Return the source and the target in small letters, exchanged if the run is used in reverse."""
        target = self.target.casefold()
        if self.source is None:
            return None, target
        source = self.source.casefold()
        return (target, source) if self.is_reversed else (source, target)


def direction_of(name: str, config: dict[str, Any], *, is_reversed: bool = False) -> Direction | None:
    """Return the direction of a run; None: its languages do not tell it.

    Args:
        config: the options that its checkpoint holds.
    """
    source, target = config["data"]["source_language"], config["data"]["target_language"]
    if config["model"].get("encoder") is None:
        return None if target == UNNAMED else Direction(name, None, target)
    return None if source == target else Direction(name, source, target, is_reversed)


def check_directions(directions: Iterable[Direction | None], needs: str) -> None:
    """Refuse runs of different languages; of those of a language model, the target language counts.

    Args:
        needs: the direction that is needed, as a clause.

    Raises:
        UserError: with the first two of them that differ.
    """
    known = [one for one in directions if one is not None]
    for first, other in combinations(known, 2):
        (source, target), (other_source, other_target) = first.as_used(), other.as_used()
        if target != other_target or (source != other_source and None not in (source, other_source)):
            raise UserError(printable(f"{first}, and {other}, but {needs}; give another run ({RENAMED})"))


def check_cleaning(first: Path, config: dict[str, Any], other: Path, other_config: dict[str, Any], what: str) -> None:
    """Refuse two runs whose text is cleaned in different ways.

    Args:
        what: uses them together, as `an ensemble`.

    Raises:
        UserError: with the option.
    """
    ours, theirs = text_options(config["data"]), text_options(other_config["data"])
    for name, value in ours.items():
        if theirs[name] != value:
            raise UserError(
                f"{first} was trained with data.cleaning.{name}={typed(value)} and {other} with {typed(theirs[name])}, "
                f"and {what} reads one text; give runs with the same options of data.cleaning"
            )
