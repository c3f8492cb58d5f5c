"""Tables: the delimiter that a CSV file has."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2seq_attn.data import table_file
from seq2seq_attn.data.columns import Choice
from seq2seq_attn.data.table_file import TabSeparatedFile, find_delimiter
from seq2seq_attn.errors import UserError


@pytest.mark.parametrize(
    ("rows", "delimiter"),
    [
        (["english;french", *("Yes, sir;Oui, monsieur" for _ in range(50)), "bad;row;three"], ";"),
        (["Yes, sir 0;Oui 0", "No, sir 1;Non 1"], ";"),
        (["en,fr", "a; b,c", "d; e,f"], ","),
        (["one; two,three", "four,five"], ","),
        (["a\tb, c", "d\te, f"], "\t"),
        (["alone"], ","),
        (["en;fr", *("Yes;Oui" for _ in range(50)), 'No;"Non', *("Well, well;Bon, bon" for _ in range(9000))], ";"),
        (["en;fr", "Yes;Oui", f"{'a' * 200_000};No"], ";"),
    ],
)
def test_the_delimiter_is_that_of_most_rows(rows: list[str], delimiter: str) -> None:
    assert find_delimiter("".join(f"{row}\n" for row in rows)) == delimiter


def test_a_quotation_mark_that_is_never_closed_leaves_the_delimiter_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "MOST_BYTES", 1000)
    assert find_delimiter(f'en;fr\nYes;Oui\n"{"no end, " * 200}') == ";"


def test_tab_separated_texts_that_are_all_in_quotation_marks_are_refused(tmp_path: Path) -> None:
    file, choice = tmp_path / "pairs.tsv", Choice((None, None), ("en", "fr"), (0, 1), one_side=False)
    for lines, is_refused in (
        (['"en"\t"fr"', '"Yes"\t"Oui"'], True),
        (['"Yes"\t"Oui"'] * 99 + ['"Yes"\tOui'] * 2, False),
        (['"Yes"\t"Oui"'] * 100 + ["Yes\tOui"], True),
        (['"Yes"\t"Oui"'], False),
        (['"Yes"\t"', '"\t"'], False),
    ):
        file.write_text("".join(f"{line}\n" for line in lines))
        if not is_refused:
            assert TabSeparatedFile(file, choice).width == 2
            continue
        with pytest.raises(
            UserError, match=f"^{file}: every field of its first {min(len(lines), 100)} lines is in quot"
        ):
            TabSeparatedFile(file, choice)
