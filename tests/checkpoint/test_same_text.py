"""Runs that are used together are of one direction."""

from __future__ import annotations

from typing import Any

import pytest

from seq2seq_attn.checkpoint.same_text import check_directions, direction_of
from seq2seq_attn.errors import UserError


def config(source: str, target: str, *, encoder: bool = True) -> dict[str, Any]:
    return {
        "data": {"source_language": source, "target_language": target},
        "model": {"encoder": {} if encoder else None},
    }


@pytest.mark.parametrize(
    "others",
    [
        [direction_of("b", config("fr", "en"), is_reversed=True)],
        [direction_of("b", config("EN", "Fr"))],  # case alone does not tell languages apart
        [direction_of("b", config("text", "text"))],
        [direction_of("b", config("text", "text", encoder=False))],
        [direction_of("b", config("fr", "fr", encoder=False)), direction_of("c", config("en", "fr", encoder=False))],
    ],
)
def test_runs_of_one_direction_or_of_an_unknown_one_pass(others: list[Any]) -> None:
    check_directions([direction_of("a", config("en", "fr")), *others], "it needs one")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (direction_of("b", config("en", "fr"), is_reversed=True), "b translates from en to fr"),
        (direction_of("b", config("de", "fr")), "b translates from de to fr"),
        (direction_of("b", config("text", "en", encoder=False)), "b is a language model of en"),
    ],
)
def test_runs_of_two_directions_are_refused(other: Any, sentence: str) -> None:
    known = direction_of("a", config("en", "fr"))
    unknown = direction_of("x", config("text", "text"))
    with pytest.raises(
        UserError, match=rf"^a translates from en to fr, and {sentence}, but it needs one; give another"
    ):
        check_directions([known, unknown, other], "it needs one")
