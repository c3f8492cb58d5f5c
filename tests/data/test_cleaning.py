"""What each step of cleaning changes, drops and counts."""

import inspect
import re

import pytest

from seq2seq_attn.data.cleaning import OF_TEXT, Cleaning, text_options
from seq2seq_attn.data.corpus import Pair
from seq2seq_attn.errors import UserError
from seq2seq_attn.text import num_words


def pair(source: str, target: str) -> Pair:
    return Pair(source, target, target)


def test_accents_are_composed_and_french_blanks_become_plain():
    cleaned, counts = Cleaning().normalize([("Hey\u2028you", " E\u0301te\u0301\u202f\u00a0\u2009!\t"), ("a", "b")])
    assert cleaned == [Pair("Hey you", "Été !", " E\u0301te\u0301\u202f\u00a0\u2009!\t"), pair("a", "b")]
    assert counts == {"pairs read": 2, "pairs normalised": 1}


def test_a_clean_line_is_kept_once() -> None:
    clean, unclean = "Un été très chaud", "Un  été"
    assert Cleaning().normalize_text(clean) is clean
    assert Cleaning().normalize_text(unclean) == "Un été"


def test_french_blanks_stay_on_request():
    assert Cleaning(normalize_spaces=False).normalize_text("  Été\u202f!  Oui ") == "Été\u202f! Oui"


def test_tabs_are_blanks_whether_or_not_french_blanks_stay() -> None:
    for normalize_spaces in (True, False):
        cleaning = Cleaning(normalize_spaces=normalize_spaces)
        assert [cleaning.normalize_text(text) for text in ("\tUn\t \tété\t", "\t")] == ["Un été", ""]


def test_every_step_counts_what_it_drops():
    cleaning = Cleaning(min_words=2, max_words=5, max_characters=30, max_ratio=2, deduplicate=True)
    good, longest = pair("a b", "c d"), pair("a b", f"c {'d' * 28}")
    pairs = [
        longest,
        good,
        pair("", "c d"),
        pair("a b", ""),
        pair("a b", "c" * 31),
        pair("a", "c d"),
        pair("a b c d e f", "c d e"),
        pair("a b", "c d e f g"),
        good,
        pair("a b", "c e"),
    ]
    kept, counts = cleaning.drop(pairs)
    assert kept == [longest, good, pair("a b", "c e")]
    assert counts == {
        "dropped, empty side": 2,
        "dropped, over 30 characters": 1,
        "dropped, under 2 words": 1,
        "dropped, over 5 words": 1,
        "dropped, length ratio over 2": 1,
        "dropped, duplicate": 1,
    }


def test_duplicates_and_unequal_lengths_are_kept_on_request():
    pairs = [pair("a", "b c d e f g h i j k")] * 2
    assert Cleaning(deduplicate=False, max_ratio=None).drop(pairs)[0] == pairs


def test_a_line_of_a_hundred_thousand_tokens_is_dropped_with_or_without_blanks():
    kept, counts = Cleaning().drop([pair("word " * 100_000, "mot"), pair("字" * 100_000, "mot"), pair("a", "b")])
    assert kept == [pair("a", "b")]
    assert counts["dropped, over 1000 characters"] == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"min_words": 9, "max_words": 5},
            "data.cleaning needs 1 <= min_words <= max_words, got 9 and 5; use min_words=1 max_words=100",
        ),
        ({"max_characters": 0}, "data.cleaning.max_characters=0 must be at least 1; use 1000"),
        ({"max_ratio": 0.5}, "data.cleaning.max_ratio=0.5 must be at least 1; use 9, or null for no limit"),
    ],
)
def test_limits_that_no_pair_can_meet_are_refused(settings, sentence):
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        Cleaning(**settings)


def test_a_pair_of_exactly_the_greatest_ratio_stays():
    even, uneven = pair("a b", "c d e f"), pair("a b", "c d e f g")
    assert Cleaning(max_ratio=2).drop([even, uneven])[0] == [even]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("Un été très  chaud.", 4),
        ("Привет, мир", 2),
        ("안녕하세요 세계", 2),
        ("恭喜", 1),
        ("我喜欢苹果", 3),
        ("我用 Python 写程序", 4),
        ("こんにちは世界", 4),
        ("สวัสดีชาวโลก", 3),
        ("ကမ္ဘာလောက", 2),
    ],
)
def test_scripts_without_spaces_count_by_their_characters(text: str, words: int) -> None:
    assert num_words(text) == words


def test_a_pair_of_english_and_chinese_is_kept_where_its_lengths_agree() -> None:
    long = pair("one two three four five six seven eight nine ten eleven", "一二三四五六七八九十一二三四五六七")
    short = pair("Congratulations!", "恭喜你")
    wrong = pair("yes", "这是一个完全不同的很长的句子没有人会说这么多话")
    cleaning = Cleaning(max_ratio=9, max_words=12)
    kept, counts = cleaning.drop([long, short, wrong, pair("a b c d e f g", "字" * 25)])
    assert kept == [long, short]
    assert (counts["dropped, over 12 words"], counts["dropped, length ratio over 9"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Go.", "go ."),
        ("Va\u202f!", "va !"),
        ("Non, merci...", "non , merci . . ."),
        ("J'ai 1,5\u00a0€ ?!", "j'ai 1 ,5 € ? !"),
        ("ÉTÉ", "été"),
        (". a", ". a"),
    ],
)
def test_letters_become_small_and_punctuation_is_split_off_as_in_the_book(text, clean):
    assert Cleaning(lowercase=True, split_punctuation=True).normalize_text(text) == clean
    assert Cleaning(lowercase=True).normalize_text(text) == " ".join(text.split()).lower()
    assert Cleaning(split_punctuation=True).normalize_text(text).lower() == clean


def test_the_options_of_the_text_are_those_that_change_one() -> None:
    text = "Ça va,\u00a0Zoé?"
    options = {name: one.default for name, one in inspect.signature(Cleaning).parameters.items()}
    other = {"min_words": 2, "max_words": 3, "max_characters": 5, "max_ratio": 2.0}
    changing = {
        name
        for name, value in options.items()
        if Cleaning(**{name: other.get(name, not value)}).normalize_text(text) != Cleaning().normalize_text(text)
    }
    assert changing == OF_TEXT.keys()
    assert all(options[name] is value for name, value in OF_TEXT.items())
    assert text_options({"corpus": {"cleaning": {"lowercase": True, "max_words": 3}}}) == OF_TEXT | {"lowercase": True}
    for data in ({}, {"cleaning": None}, {"cleaning": "moses"}, {"cleaning": True}):  # of a corpus of the user's own
        assert text_options(data) == OF_TEXT
