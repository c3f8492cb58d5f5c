"""No line stops `translate`: whatever a line contains, one comes out, and what was changed is said."""

from __future__ import annotations

import gzip
import io
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import SENTENCES, of_text, write_checkpoint

from seq2seq_attn.inference import lines
from seq2seq_attn.inference.lines import opened, read_lines
from seq2seq_attn.inference.translate import translate
from seq2seq_attn.inference.translator import Translator

HOSTILE = {
    "not UTF-8": b"caf\xe9 the cat",
    "half a letter": "the cat é".encode()[:-1],
    "overlong": b"\xc0\xaf the \xe0\x80\xaf",
    "a lone surrogate": b"the \xed\xa0\x80 cat \xed\xbf\xbf",
    "beyond Unicode": b"\xf4\x90\x80\x80 \xf8\x88\x80\x80\x80",
    "UTF-16": "the cat".encode("utf-16"),
    "UTF-32": "the cat".encode("utf-32-le"),
    "NUL": b"the\x00 cat\x00",
    "control characters": bytes(range(1, 9)) + b"the\x1b[31m cat\x7f\xc2\x80\xc2\x9f",
    "separators": "the\u2028cat\u2029sees\u0085a\vred\fhouse\x1c\x1d\x1e".encode(),
    "a byte-order mark": b"\xef\xbb\xbfthe \xef\xbb\xbf cat",
    "noncharacters": "the \ufffe cat \uffff \U0010ffff".encode(),
    "empty": b"",
    "blanks": " \t\u00a0\u3000\u200b ".encode(),
    "CR LF": b"the cat\r",
    "carriage returns": b"\rthe\r\rcat\r",
    "tabs": b"\tthe\tcat\t",
    "100,000 tokens": b"the cat " * 50_000,
    "a word of 100,000 letters": b"a" * 100_000,
    "100,000 combining marks": ("a" + "\u0301\u0323" * 50_000).encode(),
    "2 MB": b"water " * 350_000,
    "right to left": "\u202ethe \u2066cat\u2069 \u05d0\u0628".encode(),
    "emoji": "the \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f4\U000e0067\U000e007f cat".encode(),
    "markup": b"<s> </s> <pad> <unk> <0x0A> \xe2\x96\x81\xe2\x96\x81 ||| \\n %s {} ${seed}",
    "nothing but word marks": "\u2581 \u2581\u2581".encode(),
}
UNCHANGED = ("noncharacters", "empty", "blanks", "CR LF", "tabs", "100,000 combining marks", "right to left", "emoji")
UNCHANGED += ("a byte-order mark", "markup", "nothing but word marks")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = [f"model.{side}.num_layers=1" for side in ("encoder", "decoder")]
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "a.ckpt", "model=transformer", *layers, scale=1.5)


@pytest.fixture(scope="module", autouse=True)
def translator(file: Path) -> Iterator[Translator]:
    """The one that all commands of this module use."""
    loaded = Translator.load(file, device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "load", lambda paths, **options: loaded)
        yield loaded


def run(folder: Path, checkpoint: Path, content: bytes, *overrides: str, name: str = "in.txt") -> list[str]:
    """The lines of the output."""
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        files = [f"ckpt_path={checkpoint}", f"input={folder / name}", f"output={folder / 'out.txt'}"]
        limits = ["device=cpu", "search=greedy", "search.limits.max_length=5", "max_source_tokens=17"]
        translate(compose("translate", [*files, *limits, *overrides]))
    *written, end = (folder / "out.txt").read_bytes().decode().split("\n")
    assert end == ""
    return written


def test_every_hostile_line_is_one_line_and_its_neighbours_are_as_without_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tame = [SENTENCES[number].encode() for number in range(len(HOSTILE) + 1)]
    expected = run(tmp_path, file, b"\n".join(tame) + b"\n")
    capsys.readouterr()
    mixed = [line for both in zip(tame, [*HOSTILE.values(), tame[-1]], strict=True) for line in both][:-1]
    found = run(tmp_path, file, b"\n".join(mixed), "batch_sentences=7")
    assert len(found) == len(mixed)
    assert found[::2] == expected
    said = of_text(capsys.readouterr().err.splitlines())
    numbers = {int(re.match(rf"{re.escape(str(tmp_path / 'in.txt'))}, line (\d+): ", line)[1]) for line in said}  # type: ignore[index]
    positions = {kind: 2 * position + 2 for position, kind in enumerate(HOSTILE)}
    assert numbers >= {position for kind, position in positions.items() if kind not in UNCHANGED}
    assert not numbers & {positions[kind] for kind in ("empty", "blanks", "CR LF", "tabs")}
    assert numbers <= set(positions.values())


def test_a_hostile_first_line_alone_is_translated_from_a_packed_file_too(
    translator: Translator, tmp_path: Path
) -> None:
    texts = []
    for kind, content in HOSTILE.items():
        (tmp_path / "in.txt").write_bytes(content + b"\n")
        (tmp_path / "in.txt.gz").write_bytes(gzip.compress(content + b"\n"))
        lines = []
        for name in ("in.txt", "in.txt.gz"):
            with opened("input", str(tmp_path / name)) as stream:
                lines += read_lines(stream, kind)
        plain, packed = lines
        assert plain == packed, kind
        texts.append(plain.text)
    found = translator.translate(texts, search="greedy", max_source_tokens=17)
    assert len(found) == len(HOSTILE)
    assert all(len(one.text.splitlines()) <= 1 for one in found)


def test_a_packed_file_is_translated_as_a_plain_one(file: Path, tmp_path: Path) -> None:
    content = HOSTILE["not UTF-8"] + b"\n" + HOSTILE["markup"]
    assert run(tmp_path, file, content, name="in.txt.gz") == run(tmp_path, file, content)


@pytest.mark.slow
def test_everything_that_is_written_beside_stays_in_step(file: Path, tmp_path: Path) -> None:
    """But for maps, which a run draws for one line here."""
    content = b"\n".join(HOSTILE.values())
    beside = [f"{name}={tmp_path / name}" for name in ("nbest", "alignments")]
    found = run(tmp_path, file, content, *beside, "search=beam", "search.beam_size=2", "search.num_best=2")
    assert len(found) == len(HOSTILE)
    assert (tmp_path / "alignments").read_bytes().count(b"\n") == len(HOSTILE)
    numbers = [int(line.split(" ||| ")[0]) for line in (tmp_path / "nbest").read_text("utf-8").split("\n")[:-1]]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(HOSTILE)))
    run(tmp_path, file, HOSTILE["markup"] + b"\n" + HOSTILE["emoji"], f"maps={tmp_path / 'maps'}")
    assert {path.name[:6] for path in (tmp_path / "maps").iterdir()} == {"000001", "000002"}


def test_hostile_prefixes_stay_in_step_too_and_what_was_changed_is_said(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "begun").write_bytes(b"\n".join(HOSTILE.values()))
    content = b"\n".join([SENTENCES[0].encode()] * len(HOSTILE))
    assert len(run(tmp_path, file, content, f"prefixes={tmp_path / 'begun'}")) == len(HOSTILE)
    said = capsys.readouterr().err.splitlines()
    lines = {kind: f"{tmp_path / 'in.txt'}, line {position}: " for position, kind in enumerate(HOSTILE, start=1)}
    for kind, note in (
        ("not UTF-8", "its prefix: not UTF-8; what cannot be read is replaced"),
        ("NUL", "its prefix: control characters are replaced by blanks"),
        ("100,000 tokens", "its prefix: cut from 100000 to 17 tokens, the most that max_source_tokens allows"),
        ("2 MB", "its prefix: longer than 1,048,576 bytes; the rest is left out"),
    ):
        assert lines[kind] + note in said, kind
    of_lines = {line: [one for one in said if one.startswith(line)] for line in lines.values()}
    assert sum(map(len, of_lines.values())) == len(said)
    assert max(sum(" cut from " in one for one in notes) for notes in of_lines.values()) == 1


def test_a_text_from_python_may_hold_half_a_surrogate_pair(translator: Translator) -> None:
    found = translator.translate(["the \ud800 cat", "\udfff", "the cat"], search="greedy", max_source_tokens=17)
    assert [of_text(one.notes) for one in found] == [["not Unicode; what cannot be read is replaced"]] * 2 + [[]]


def test_a_hostile_line_takes_no_longer_than_a_long_one(translator: Translator) -> None:
    """Sorting half a million combining marks would take minutes."""
    began = time.process_time()
    translator.translate(["a" + "\u0301\u0323" * 250_000], search="greedy", max_source_tokens=17)
    assert time.process_time() - began < 10


hostile_bytes = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(sorted(HOSTILE.values(), key=len)[:-4]),
)


def check_alignment(file: Path, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), file, content, "batch_sentences=5")
    assert len(found) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


few = settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
many = settings(few, max_examples=500, derandomize=False)


@few
@given(st.lists(hostile_bytes, max_size=9))
def test_as_many_lines_come_out_as_go_in(file: Path, parts: list[bytes]) -> None:
    check_alignment(file, b"\n".join(parts))


@pytest.mark.slow
@many
@given(st.lists(hostile_bytes, max_size=9))
def test_as_many_lines_come_out_as_go_in_of_500_files(file: Path, parts: list[bytes]) -> None:
    check_alignment(file, b"\n".join(parts))


def test_long_lines_are_cut_as_they_are_read_and_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 11)
    drawn = random.Random(5)
    content = bytes(drawn.choice(b"ab\xc3\xa9\n\r\0\xff") for _ in range(3000))

    class Bounded(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert 0 < size <= 11
            return super().readline(size)

    found = list(read_lines(Bounded(content), "a.txt"))
    assert [line.number for line in found] == list(range(1, content.count(b"\n") + (content[-1:] != b"\n") + 1))
    assert max(len(line.text) for line in found) <= 11
