"""Tags of a source at the words of its translation, by links made by hand."""

from __future__ import annotations

import pytest

from seq2seq_attn.inference.placeholders import insert_placeholders, remove_placeholders

SAME = [(word, word) for word in range(9)]
BLACK_DOG = [(0, 0), (1, 2), (2, 1), (3, 3)]  # the black dog sleeps, le chien noir dort


def kept(source: str, target: str, links: list[tuple[int, int]]) -> str:
    return insert_placeholders(target, remove_placeholders(source)[1], links)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("the <x id=1> black dog sleeps", "le chien <x id=1> noir dort"),
        ("the black <x id=1>dog sleeps", "le <x id=1>chien noir dort"),
        ("the black dog<x id=1> sleeps", "le chien<x id=1> noir dort"),
        ("<x id=1> the black dog sleeps <x id=2>", "<x id=1> le chien noir dort <x id=2>"),
        ("the <b>black dog</b> sleeps", "le <b>chien noir</b> dort"),
        ("the <b>black</b> dog sleeps", "le chien <b>noir</b> dort"),
        ('<g id="1">the <b>black</b></g> dog sleeps', '<g id="1">le chien <b>noir</b></g> dort'),
        ("the black dog <x/><y/>sleeps", "le chien noir <x/><y/>dort"),
    ],
)
def test_a_tag_goes_with_its_word(source: str, expected: str) -> None:
    assert kept(source, "le chien noir dort", BLACK_DOG) == expected


def test_words_without_links_leave_a_tag_to_the_next_and_else_at_the_end() -> None:
    assert kept("the <x> black dog sleeps", "le chien dort", [(0, 0), (2, 1), (3, 2)]) == "le <x> chien dort"
    assert kept("the <x> dog", "le chien", []) == "le chien <x>"
    assert kept("the dog</b> sleeps", "le chien", []) == "</b> le chien"
    assert kept("<x id=1>", "", []) == "<x id=1>"


@pytest.mark.parametrize(
    "text",
    [
        "Click <x id=1> now",
        "<x id=1>Click now",
        "a <b>c</b> d",
        "see the file<x id=1>",
        "<x> <y/> go",
        "a <b> c </b> d",
    ],
)
def test_the_source_with_its_own_words_is_itself(text: str) -> None:
    plain, found = remove_placeholders(text)
    assert "<" not in plain
    assert insert_placeholders(plain, found, SAME[: len(plain.split())]) == text


def test_signs_that_are_no_tags_stay() -> None:
    assert remove_placeholders("3 < 4 and 5 > 2") == ("3 < 4 and 5 > 2", [])
