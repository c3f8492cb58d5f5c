"""An output file is whole under its name, or as it was before; what is no regular file is written directly."""

from __future__ import annotations

import gzip
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.lines import Line
from seq2seq_attn.inference.output import TranslationFiles, num_lines, written
from seq2seq_attn.inference.translator import Translation


def write(path: Path | str, content: bytes = b"new\n") -> None:
    with written("output", str(path)) as stream:
        stream.write(content)


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_is_interrupted_leaves_the_file_of_before_and_nothing_beside(
    name: str, error: type[BaseException], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(error), written("output", str(tmp_path / name)) as stream:  # noqa: PT012
        stream.write(b"half a li" * 10_000)
        stream.flush()
        assert (tmp_path / name).read_bytes() == b"old"
        raise error
    assert (tmp_path / name).read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz", "n" * 252])
def test_lines_that_were_translated_before_an_interrupt_are_kept_beside_and_counted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b"old")
    parts = [f"{name[:246]}.part", f"{name[:246]}.2.part"]
    for part in parts:
        with pytest.raises(KeyboardInterrupt), written("output", str(tmp_path / name), keeps_part=True) as stream:  # noqa: PT012
            stream.write(b"one\ntwo\n")
            raise KeyboardInterrupt
        said = f"output={tmp_path / name} is not finished; what was written is in {tmp_path / part} (lines: 2)\n"
        assert capsys.readouterr().err == said
        content = (tmp_path / part).read_bytes()
        assert (gzip.decompress(content) if name.endswith("gz") else content) == b"one\ntwo\n"
        with pytest.raises(KeyboardInterrupt), written("output", str(tmp_path / name), keeps_part=True):
            raise KeyboardInterrupt
    assert (tmp_path / name).read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == sorted([name, *parts])
    write(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == sorted([name, *parts])


@pytest.mark.parametrize(("name", "kept"), [("out.txt", 400_000), ("out.txt.gz", 4_000)])
def test_a_part_that_is_cut_off_has_the_lines_that_can_be_read(name: str, kept: int, tmp_path: Path) -> None:
    """As a full disk leaves it: without the end of its last line, or the trailer of a gz file."""
    file, lines = tmp_path / name, b"".join(b"line %06d\n" % number for number in range(50_000))
    write(file, lines)
    content = file.read_bytes()
    assert kept < len(content)
    file.write_bytes(content[:kept])
    counted = num_lines(file, packed=name.endswith("gz"))
    assert 0 < counted < 50_000
    if name == "out.txt":
        assert counted == lines[:kept].count(b"\n")
    file.write_bytes(content)
    assert num_lines(file, packed=name.endswith("gz")) == 50_000


def no_maps(texts: Sequence[str], translations: Sequence[Translation]) -> Iterator[tuple[int, list[SlotMap]]]:
    yield from ((row, []) for row in reversed(range(len(texts))))


def test_all_files_are_flushed_with_each_window(tmp_path: Path) -> None:
    files = {option: str(tmp_path / f"{option}.txt") for option in ("output", "nbest", "alignments")}
    with ExitStack() as stack:
        answers = TranslationFiles(stack, None, no_maps, lambda text, maps: [], **files, maps=None)
        answers.write([Line(1, "a", [])], [Translation("b", -1.0, -1.0, [], [], [], [])])
        found = {option: (tmp_path / f"{option}.txt.part").read_bytes() for option in files}
    assert found == {"output": b"b\n", "nbest": b"0 ||| b ||| -1.000000 ||| -1.000000\n", "alignments": b"\n"}


def test_a_file_is_replaced_with_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "out.txt", tmp_path / "link"
    file.write_bytes(b"longer than what is new\n")
    file.chmod(0o640)
    link.symlink_to("out.txt")
    write(link)
    assert link.is_symlink()
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new\n", 0o640)
    write(tmp_path / "other.gz")
    assert gzip.decompress((tmp_path / "other.gz").read_bytes()) == b"new\n"
    before = os.umask(0o027)
    try:
        write(tmp_path / "third")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "third").stat().st_mode) == 0o640


def test_pipes_and_devices_are_written_directly_and_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert read == [b"new\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_open_descriptor_is_written_behind_what_it_has_written(tmp_path: Path) -> None:
    """As `>> out.txt` opens it, for `output=/dev/stdout`."""
    (tmp_path / "out.txt").write_bytes(b"old\n")
    descriptor = os.open(tmp_path / "out.txt", os.O_WRONLY | os.O_APPEND)
    for path in (f"/dev/fd/{descriptor}", f"/proc/self/fd/{descriptor}"):
        write(path)
    os.close(descriptor)
    assert (tmp_path / "out.txt").read_bytes() == b"old\nnew\nnew\n"
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("name", ["a.zst", "a.txt.xz"])
def test_a_format_that_is_not_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^output={tmp_path / name} would not be compressed; end its name in .gz, or"):
        write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path, why in (
        ("/dev/full", "No space left on device"),
        (str(tmp_path / "loop"), "Too many levels of symbolic links"),
        (str(tmp_path), "Is a directory"),
        (str(tmp_path / "no" / "out"), "No such file or directory"),
        ("/dev/fd/987", "Bad file descriptor"),
    ):
        with pytest.raises(UserError, match=rf"^output={path} cannot be written \({why}\)$"):
            write(path, b"new\n" * 10_000)
    assert os.listdir(tmp_path) == ["loop"]
