"""Lines of a byte stream: they end at line feeds only, and are read no further ahead than one window."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning

from seq2seq_attn.data.reading import read_lines as read_corpus_lines
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import lines
from seq2seq_attn.inference.lines import Line, count_lines, opened, read_lines, windows
from seq2seq_attn.inference.translator import Translation

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.inference.translate import lines_ahead, translated_windows


def read(content: bytes) -> list[Line]:
    return list(read_lines(io.BytesIO(content), "a.txt"))


def test_lines_end_at_line_feeds_only_and_the_last_needs_none() -> None:
    found = read("\ufeffun\r\ndeux\x0b\u2028 trois\r\r\n\n\x00\nquatre".encode())
    assert found == [
        Line(1, "un", []),
        Line(2, "deux\x0b\u2028 trois\r", []),
        Line(3, "", []),
        Line(4, "\x00", []),
        Line(5, "quatre", []),
    ]
    assert read(b"") == []
    assert read(b"\n") == [Line(1, "", [])]


def test_what_is_not_utf8_is_replaced_and_noted() -> None:
    bad, good = read("déjà\n".encode("latin-1") + "déjà\n".encode())
    assert bad == Line(1, "d�j�", ["not UTF-8; what cannot be read is replaced"])
    assert good == Line(2, "déjà", [])


def test_a_line_beyond_all_bounds_is_cut_between_letters_and_the_next_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 8)
    note = "longer than 8 bytes; the rest is left out"
    assert read(f"abcdefgé{'x' * 30}\nnext\n".encode()) == [Line(1, "abcdefg", [note]), Line(2, "next", [])]
    assert read(b"abcdefgh\nabcdefg\nabcdefgh") == [
        Line(1, "abcdefgh", []),
        Line(2, "abcdefg", []),
        Line(3, "abcdefgh", []),
    ]


def test_files_in_zstandard_are_unpacked_and_other_formats_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.zst"
    with pa.CompressedOutputStream(str(file), "zstd") as stream:
        stream.write(b"un\ndeux\n" * 15_000 + b"trois")
    with opened("input", str(file)) as stream:
        found = list(read_lines(stream, str(file)))
    assert [line.text for line in found] == ["un", "deux"] * 15_000 + ["trois"]
    assert count_lines(str(file)) is None
    file.write_bytes(file.read_bytes()[:-9])
    with (
        opened("input", str(file)) as stream,
        pytest.raises(UserError, match=r"a.zst is a damaged zstd file \(Truncated"),
    ):
        list(read_lines(stream, str(file)))
    sentence = r"a.txt.zip is compressed; decompress it, or compress it with gzip"
    with pytest.raises(UserError, match=sentence), opened("input", str(tmp_path / "a.txt.zip")):
        pass
    assert read("un\n".encode("utf-16"))[0].notes == ["UTF-16, not UTF-8; convert the text"]


@pytest.mark.parametrize("path", ["/dev/zero", "endless.gz"])
def test_a_line_without_an_end_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_SKIPPED", 1 << 21)
    if path.endswith(".gz"):
        path = str(tmp_path / path)
        Path(path).write_bytes(gzip.compress(b"x" * (1 << 24), 1))
    sentence = rf"^{path}, line 1: no line end within 2,097,152 bytes; give a text file$"
    with opened("input", path) as stream, pytest.raises(UserError, match=sentence):
        next(read_lines(stream, path))


def test_a_stream_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "written", os.O_WRONLY | os.O_CREAT)
    sentence = r"^standard input cannot be read \(Bad file descriptor\)$"
    with io.FileIO(descriptor, "r") as stream, pytest.raises(UserError, match=sentence):
        next(read_lines(stream, "standard input"))
    sentence = r"^input=.+ cannot be read \(Is a directory\)$"
    with pytest.raises(UserError, match=sentence), opened("input", str(tmp_path)):
        pass


@pytest.mark.parametrize("module", [lzma, bz2])
def test_xz_and_bz2_are_unpacked_and_a_cut_file_is_named(module: Any, tmp_path: Path) -> None:
    ending, kind = {lzma: ("xz", "xz"), bz2: ("bz2", "bzip2")}[module]
    file = tmp_path / f"a.{ending}"
    file.write_bytes(module.compress(b"un\ndeux"))
    with opened("input", str(file)) as stream:
        assert [line.text for line in read_lines(stream, str(file))] == ["un", "deux"]
    assert count_lines(str(file)) is None
    file.write_bytes(file.read_bytes()[:-9])
    with opened("input", str(file)) as stream, pytest.raises(UserError, match=f"is a damaged {kind} file"):
        list(read_lines(stream, str(file)))


@pytest.mark.parametrize(("ending", "kind"), [("gz", "gzip"), ("zst", "zstd"), ("xz", "xz"), ("bz2", "bzip2")])
def test_a_compressed_file_without_bytes_is_no_empty_text(ending: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{ending}"
    file.touch()
    sentence = rf"^{file} is a damaged {kind} file \(it has no bytes\); delete it and get it again$"
    with pytest.raises(UserError, match=sentence), opened("input", str(file)):
        pass
    with pytest.raises(UserError, match=sentence):
        read_corpus_lines(file)


def test_a_broken_gz_file_is_named(tmp_path: Path) -> None:
    for number, content in enumerate((b"no gz", gzip.compress(os.urandom(5000))[:2000])):
        broken = tmp_path / f"{number}.gz"
        broken.write_bytes(content)
        with (
            gzip.open(broken) as stream,
            pytest.raises(UserError, match=r"^b.gz is a damaged gzip file \(.+\); get it"),
        ):
            list(read_lines(stream, "b.gz"))


def test_a_window_has_so_many_lines_or_fewer_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_CHARACTERS", 10)
    given = [Line(number, "x" * length, []) for number, length in enumerate([1, 2, 3, 4, 30, 0, 0, 0, 0])]
    found = [[line.number for line in block] for block in windows(iter(given), 3)]
    assert found == [[0, 1, 2], [3, 4], [5, 6, 7], [8]]


class Counted:
    """Lines that are made as they are read."""

    def __init__(self, total: int) -> None:
        self.total, self.read_lines = total, 0

    def readline(self, size: int, /) -> bytes:
        if self.read_lines == self.total:
            return b""
        self.read_lines += 1
        return b"%d\n" % self.read_lines


def test_lines_are_read_no_further_ahead_than_one_window_and_none_is_kept() -> None:
    stream, written, ahead, texts_held = Counted(20_000), 0, 0, 0

    def answer(texts: list[str], *, prefixes: list[str] | None) -> list[Translation]:
        nonlocal texts_held
        assert prefixes is None
        texts_held = max(texts_held, len(texts))
        return [Translation(text, 0.0, 0.0, [], [], [], []) for text in texts]

    for block, translations in translated_windows(answer, stream, "a.txt", 1024, None):
        ahead = max(ahead, stream.read_lines - written)
        assert [line.number for line in block] == [int(one.text) for one in translations]
        assert block[0].number == written + 1
        written += len(block)
    assert (written, ahead, texts_held) == (20_000, 1024, 1024)


def test_lines_read_ahead_fill_the_batches_that_are_sorted() -> None:
    assert lines_ahead({"read_ahead": 7, "batch_sentences": 11, "batch_tokens": None}) == 77
    assert lines_ahead({"read_ahead": 1, "batch_sentences": 1, "batch_tokens": None}) == 1
    assert lines_ahead({"read_ahead": 3, "batch_sentences": 11, "batch_tokens": 40}) == 9


def test_lines_are_counted_in_plain_files_only(tmp_path: Path) -> None:
    for content, count in ((b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3)):
        (tmp_path / "a.txt").write_bytes(content)
        assert count_lines(str(tmp_path / "a.txt")) == count
    assert count_lines(None) is None
    assert count_lines("a.txt.gz") is None
    assert count_lines("/dev/stdin") is None
