"""Tags of a source at the words of its translation, by links made by hand."""

from __future__ import annotations

from random import Random
from time import perf_counter
from typing import Any

import pytest

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.inference.line_answers import LineAnswers
from seq2seq_attn.inference.placeholders import (
    MOST_SIGNS,
    TAG,
    Placeholder,
    insert_placeholders,
    pairs_of_tags,
    remove_placeholders,
)
from seq2seq_attn.inference.translator import Translation

SAME = [(word, word) for word in range(9)]
BLACK_DOG = [(0, 0), (1, 2), (2, 1), (3, 3)]  # the black dog sleeps, le chien noir dort


def kept(source: str, target: str, links: list[tuple[int, int]]) -> str:
    return insert_placeholders(target.split(), remove_placeholders(source)[1], links)


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


@pytest.mark.parametrize("alternatives", [True, False])
def test_tags_are_put_into_other_hypotheses_only_where_they_are_read(alternatives: bool) -> None:
    other = Translation("le chat", -2.0, -1.0, ["▁le", "▁chat"], [], [], [])
    passes: list[Translation] = []
    limits: list[dict[str, Any]] = []

    class Made:
        def translate(self, texts: list[str], **_: Any) -> list[Translation]:
            return [other._replace(log_prob=-1.0, alternatives=[other]) for _ in texts]

        def attentions(self, texts: list[str], translations: list[Translation], **given: Any) -> Any:
            passes.extend(translations)
            limits.append(given)
            return ((row, []) for row in range(len(texts)))

        def source_words(self, text: str) -> list[list[int]]:
            return []

        def words(self, translation: Translation) -> list[str]:
            return translation.text.split()

    answers: Any = object.__new__(LineAnswers)  # whose constructor takes a whole translator
    vars(answers).update(translator=Made(), search=None, heads=Heads(), extraction=Extraction())
    vars(answers).update(limits={"max_source_tokens": 9}, placeholders=True, alternatives=alternatives)
    (best,) = answers.translate(["the <x> cat"])
    assert (best.text, len(passes)) == ("le chat <x>", 1 + alternatives)
    assert [one.text for one in best.alternatives] == ["le chat <x>"] * alternatives
    assert limits == [{"max_source_tokens": 9}]  # as many as were read for the translation


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
        "see (<b>this</b>) now",
        "see (<b>this page</b>) now",
        'say "<b>yes</b>"',
        "go <i>(<b>there</b>)</i>.",
        "see the file<x id=1>.",
        "see <b>this</b><x id=1>.",
    ],
)
def test_the_source_with_its_own_words_is_itself(text: str) -> None:
    plain, found = remove_placeholders(text)
    assert "<" not in plain
    assert insert_placeholders(plain.split(), found, SAME[: len(plain.split())]) == text


def test_a_tag_within_a_word_goes_around_the_signs_of_the_word_linked_to_it_where_it_has_the_same() -> None:
    assert kept("see (<b>this</b>) now", "voir (ceci) ici", SAME) == "voir (<b>ceci</b>) ici"
    assert kept("see (<b>this</b>) now", "voir ceci ici", SAME) == "voir <b>ceci</b> ici"
    assert kept('say "<b>this page</b>"', 'dire "ceci page"', SAME) == 'dire "<b>ceci page</b>"'
    assert kept('"<b>"</b>', '"', [(0, 0)]) == '<b>"</b>'
    assert kept("un<b>do</b> it", "fais le", SAME) == "<b>fais</b> le"


def test_no_blank_comes_into_a_word_with_a_tag() -> None:
    assert kept("(<br>He <br> (<b>", "(livres)", [(0, 0), (1, 0)]) == "(<br><br>livres)<b>"
    assert kept("(<b>, </b>) ", "chat (x)", [(1, 1)]) == "chat (<b></b>x)"


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("the <b>black</b> dog", "le chien", [(0, 0), (2, 1)], "le <b></b> chien"),
        ("<b>Save</b> it", "le", [(1, 0)], "<b></b> le"),
        ("a <b></b> c", "a c", [(0, 0), (1, 1)], "a <b></b> c"),
        ("a <b></b> c", "a c", [], "a c <b></b>"),
        ("go<b> now</b>", "va", [(0, 0)], "va<b></b>"),
        ("go<b> now</b>", "va", [], "<b></b> va"),
    ],
)
def test_a_pair_of_tags_around_words_without_links_stays_in_order(
    source: str, target: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert kept(source, target, links) == expected


def test_no_end_tag_comes_before_its_begin_tag_and_no_tag_is_lost() -> None:
    random = Random(1)
    for _ in range(500):
        parts = [random.choice(["a", "b", "(", ")", " ", " ", ". "]) for _ in range(8)]
        cuts = [sorted(random.choices(range(9), k=2)) for _ in range(3)]
        for name, (begin, end) in zip("xyz", cuts, strict=True):
            parts = [*parts[:begin], f"<{name}>", *parts[begin:end], f"</{name}>", *parts[end:]]
        links = [(random.randrange(4), random.randrange(3)) for _ in range(random.randrange(4))]
        found = kept("".join(parts), "u (v) .", links)
        for name in "xyz":
            assert found.count(f"<{name}>") == found.count(f"</{name}>") == 1
            assert found.index(f"<{name}>") < found.index(f"</{name}>"), ("".join(parts), links, found)


def test_a_line_break_between_two_letters_leaves_a_blank_to_the_model() -> None:
    for tag in ("<br>", "<br/>", "<x id=1/>"):
        assert remove_placeholders(f"one{tag}two")[0] == "one two"
        assert kept(f"one{tag}two", "un deux", SAME) == f"un{tag} deux"
    assert remove_placeholders("un<b>do</b><x>")[0] == "undo"


def test_signs_that_are_no_tags_stay() -> None:
    assert remove_placeholders("3 < 4 and 5 > 2") == ("3 < 4 and 5 > 2", [])


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("See <a title='x>y'>the cat</a> here.", ["<a title='x>y'>", "</a>"]),
        ('See <x id="1 > 0" equiv = "</b>"/> here.', ['<x id="1 > 0" equiv = "</b>"/>']),
        ("See <a title=\"it's > that\">the 'cat'</a> here.", ['<a title="it\'s > that">', "</a>"]),
        ('See <a title="x>the cat</a> here.', ['<a title="x>', "</a>"]),
        ("See <user's name>, it's > here.", ["<user's name>"]),
        ("See <a href=x?y=1>the cat</a> here.", ["<a href=x?y=1>", "</a>"]),
    ],
)
def test_a_quoted_value_of_a_tag_may_have_angle_brackets_and_a_quotation_mark_without_its_other_may_not(
    text: str, tags: list[str]
) -> None:
    plain, found = remove_placeholders(text)
    assert [one.text for one in found] == tags
    assert insert_placeholders(plain.split(), found, SAME) == text


@pytest.mark.parametrize("part", ['="<a " ', '="<a"', "<a ='<a =\"", "<a", '="', "= "])
@pytest.mark.parametrize("start", ["", "<a "])
def test_a_hostile_line_of_unclosed_tags_is_read_at_once(part: str, start: str) -> None:
    text = start + part * (100_000 // len(part))
    begun = perf_counter()
    assert len(TAG.sub("", text)) <= len(text)
    assert perf_counter() - begun < 3  # of seconds; a tenth, but for a busy machine


@pytest.mark.parametrize("part", [".</b>", ".<b>", "a<br/>", "(<b>.</b>"])
def test_a_hostile_line_of_one_word_takes_time_and_memory_by_its_length(part: str) -> None:
    begun = perf_counter()
    plain, placeholders = remove_placeholders(part * 20_000)
    assert perf_counter() - begun < 5  # of seconds; a tenth, but for a busy machine
    assert len(plain) < 60_000
    assert max(len(one.inside) for one in placeholders) <= MOST_SIGNS


def test_many_pairs_around_many_words_are_put_back_at_once() -> None:
    number = 20_000
    plain, placeholders = remove_placeholders("a <b> " * number + "</b>" * number)
    begun = perf_counter()
    restored = insert_placeholders(plain.split(), placeholders, [(word, word) for word in range(500)])
    assert perf_counter() - begun < 5  # of seconds; a tenth, but for a busy machine
    assert restored.count("<b>") == restored.count("</b>") == number


def plainly_removed(text: str) -> tuple[str, list[Placeholder]]:
    """Return what `remove_placeholders` does, with the text before and after each tag read anew."""

    def has_letters(some: str) -> bool:
        return any(letter.isalnum() for letter in some)

    plain, placeholders, end = "", [], 0
    matches = list(TAG.finditer(text))
    begins = pairs_of_tags([match[0] for match in matches])
    for number, match in enumerate(matches):
        plain += text[end : match.start()]
        end = match.end()
        rest = TAG.sub("", text[end:])
        blank_before, blank_after = not plain or plain[-1].isspace(), not rest or rest[0].isspace()
        closes, word, inside = match[0].startswith("</"), len(plain.split()), ""
        if blank_before or blank_after:
            after = (closes or not blank_before) and bool(plain.strip()) and not (blank_before and not blank_after)
        else:
            before_tag, after_tag = plain.split()[-1], rest.split()[0]
            after = closes or (number not in begins and has_letters(before_tag))
            inside = after_tag if after else before_tag
            inside = "" if has_letters(inside) else inside
            if plain[-1].isalnum() and rest[0].isalnum() and (match[0].endswith("/>") or "br" in match[0]):
                plain, inside = f"{plain} ", ""
            elif not after:
                word -= 1
        joined = not blank_before if after else not blank_after
        placeholders.append(Placeholder(match[0], word - after, after, joined, inside))
    return plain + text[end:], placeholders


def test_tags_are_found_in_one_pass_as_they_are_by_reading_all_anew() -> None:
    parts = ["<b>", "</b>", "<x/>", "<br>", "<i>", "</i>", " ", "  ", "\u00a0", "dog", "it's", "(", ")", ".", "<", "é"]
    random = Random(3)
    for _ in range(5000):
        text = "".join(random.choices(parts, k=random.randrange(12)))
        assert remove_placeholders(text) == plainly_removed(text), text
