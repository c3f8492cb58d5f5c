"""Files with unusual or wrong content: each is read as intended, or refused with one sentence."""

import gzip
import os
import re
from pathlib import Path

import pytest

from seq2seq_attn.data import reading
from seq2seq_attn.data.reading import orient, read_lines, read_pairs
from seq2seq_attn.errors import UserError


def write(folder: Path, content: bytes) -> Path:
    file = folder / "pairs.tsv"
    file.write_bytes(content)
    return file


def refuses(file: Path, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(str(file) + sentence)}$"):
        read_pairs(file)


def test_a_third_column_is_ignored(tmp_path):
    file = write(tmp_path, b"Go.\tVa !\tCC-BY 2.0 (France) #3\nRun!\tCours !\tCC-BY 2.0 (France) #1\n")
    assert read_pairs(file) == [("Go.", "Va !"), ("Run!", "Cours !")]


@pytest.mark.parametrize(
    ("lines", "line", "fault"),
    [
        ("a\tb\nc \td\te\n", 2, "3 tab-separated columns, where half of the lines have 2"),
        ("a\tb\tc\nd\te\n", 2, "2 tab-separated columns, where half of the lines have 3"),
        ("a \tb\tc\nd\te\nf\tg\n", 1, "3 tab-separated columns, where most lines have 2"),
    ],
)
def test_two_and_three_columns_in_one_file_are_refused(tmp_path, lines, line, fault):
    way_out = "a tab inside a sentence, or a missing one, would pair the wrong texts: fix or remove the line"
    refuses(write(tmp_path, lines.encode()), f", line {line}: {fault}; {way_out}")


def test_windows_line_ends_and_a_byte_order_mark_are_removed(tmp_path):
    file = write(tmp_path, b"\xef\xbb\xbfGo.\tVa !\r\nRun!\tCours !\r\n")
    assert read_pairs(file) == [("Go.", "Va !"), ("Run!", "Cours !")]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path, end):
    file = write(tmp_path, f"one{end}two\tun{end}deux\nthree\ttrois\n".encode())
    assert read_pairs(file) == [(f"one{end}two", f"un{end}deux"), ("three", "trois")]


def test_a_last_line_without_line_end_counts(tmp_path):
    assert read_lines(write(tmp_path, b"a\nb")) == ["a", "b"]


def test_a_line_of_a_hundred_thousand_words_is_read(tmp_path):
    file = write(tmp_path, b"word " * 100_000 + b"\tmot\n")
    assert len(read_pairs(file)[0][0]) == 500_000


def test_a_wrong_number_of_columns_is_named_with_its_line(tmp_path):
    way_out = "instead of 2 or 3 (English, French, attribution); fix or remove the line"
    refuses(write(tmp_path, b"a\tb\nonly one\n"), f", line 2: 1 tab-separated column {way_out}")
    refuses(write(tmp_path, b"a\tb\tc\td\n"), f", line 1: 4 tab-separated columns {way_out}")


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    content = "Go.\tVa !\nRun!\tÉté\n".encode().replace("É".encode(), b"\xc9")
    refuses(write(tmp_path, content), ", line 2: not UTF-8; convert the file to UTF-8 or remove the line")


def test_a_nul_byte_is_named_with_its_line(tmp_path):
    sentence = ", line 3: a NUL byte, so this is not plain text; remove the line"
    refuses(write(tmp_path, b"a\tb\nc\td\ne\t\0\n"), sentence)


def test_an_empty_file_is_refused(tmp_path):
    for content in (b"", b"\xef\xbb\xbf"):
        refuses(write(tmp_path, content), " is empty; give a file with text, or get it again")


def test_what_is_not_a_file_is_refused(tmp_path):
    refuses(tmp_path / "none.tsv", " does not exist; check data.path, or data.train, data.val and data.test")
    refuses(tmp_path, " cannot be read (Is a directory); check data.path, or data.train, data.val and data.test")


def test_pipes_devices_and_loops_are_refused_before_they_are_read(tmp_path):
    sentence = " is a pipe or a device, not a file; save its content to a file first"
    os.mkfifo(tmp_path / "pairs.tsv")
    refuses(tmp_path / "pairs.tsv", sentence)
    for device in ("/dev/zero", "/dev/null", "/dev/full"):
        refuses(Path(device), sentence)
    (tmp_path / "loop").symlink_to("loop")
    refuses(
        tmp_path / "loop",
        " cannot be read (Too many levels of symbolic links); check data.path, or data.train, data.val and data.test",
    )


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_a_line_without_an_end_is_refused_before_all_of_it_is_read(tmp_path, name):
    file, line = tmp_path / name, b"a\tb\n"
    content = line + b"x" * (3 * reading.MOST_BYTES)
    file.write_bytes(gzip.compress(content, 1) if name.endswith("gz") else content)
    refuses(file, ", line 2: longer than 16,777,216 bytes; cut or remove the line")


def test_a_file_of_zeros_is_refused_at_its_first_chunk(tmp_path):
    with (tmp_path / "pairs.tsv").open("wb") as file:
        file.truncate(1 << 40)  # a sparse file, which no memory holds
    refuses(tmp_path / "pairs.tsv", ", line 1: a NUL byte, so this is not plain text; remove the line")


@pytest.mark.parametrize("size", range(9, 16))
def test_chunks_change_nothing(tmp_path, monkeypatch, size):
    monkeypatch.setattr(reading, "MOST_BYTES", size)
    lines = ["é", "", "aéb", "猫", "x\r", "été"]
    assert read_lines(write(tmp_path, "\ufeff".encode() + "\r\n".join(lines).encode())) == lines
    refuses(
        write(tmp_path, b"a\tb\n" * 9 + b"c\t\xe9\n" + b"d\te\n" * 9),
        ", line 10: not UTF-8; convert the file to UTF-8 or remove the line",
    )
    refuses(
        write(tmp_path, b"a\tb\n" * 9 + b"c\t\0\n" + b"d\te\n" * 9),
        ", line 10: a NUL byte, so this is not plain text; remove the line",
    )


def test_pairs_are_swapped_for_french_to_english():
    assert orient([("Go.", "Va !")], "en", "fr") == [("Go.", "Va !")]
    assert orient([("Go.", "Va !")], "fr", "en") == [("Va !", "Go.")]


def test_another_direction_is_refused():
    sentence = (
        "data.source_language=en data.target_language=de is not a direction of this corpus; use en and fr, or fr and en"
    )
    with pytest.raises(UserError, match=re.escape(sentence)):
        orient([], "en", "de")
