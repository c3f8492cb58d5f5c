"""What is printed is on one line and moves no cursor; everything else stays as it is."""

from __future__ import annotations

from io import StringIO

import pytest

from seq2seq_attn.errors import UserError
from seq2seq_attn.text import new_table, plain_console, printable


@pytest.mark.parametrize(
    "text",
    ["Où est l'été ?", "« oui »\u00a0\u202f!", "\u0645\u06cc\u200c\u062e", "\U0001f469\u200d\U0001f467", "co\u00adop"],
)
def test_text_of_any_language_stays(text: str) -> None:
    assert printable(text) == text


def test_each_control_character_is_one_visible_character_and_each_line_end_a_blank() -> None:
    controls = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]
    controls += [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xDFFF)]
    shown = {control: printable(f"a{control}b") for control in controls}
    blanks = {control for control, text in shown.items() if text == "a b"}
    assert {text for control, text in shown.items() if control not in blanks} == {"a\ufffdb"}
    assert blanks == {control for control in controls if len(f"a{control}b".splitlines()) == 2} | {"\t"}


def test_tables_are_printed_without_control_characters() -> None:
    table = new_table(["score", "te\x1b[31mst"], [["bl\x1b]0;t\x07eu", "1.00"]])
    console = plain_console(file=StringIO(), width=80)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    assert "te\ufffd[31mst" in text


def test_a_mistake_is_said_without_the_control_characters_that_it_quotes() -> None:
    assert str(UserError("data.path=\x1b]0;title\x07\nnone")) == "data.path=\ufffd]0;title\ufffd none"
