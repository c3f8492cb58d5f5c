"""What the drawing scripts answer to a file that is none of theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.benchmarks import figures_file as script


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "nothing.json: No such file or directory; give the .json"),
        (b"# A page", "nothing.json is no JSON"),
        (b"\xff\xfe", "nothing.json is no JSON"),
        (b'{"figures": []}', "nothing.json holds no 'sizes': it is of another benchmark than draw_it.py draws"),
        (b"[1, 2]", "nothing.json holds no 'sizes'"),
    ],
)
def test_a_file_of_another_kind_is_told_in_a_sentence(
    content: bytes | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "nothing.json"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["scripts/draw_it.py", str(file)])
    with pytest.raises(SystemExit, match=r"^2$"):
        script.draw_given("what it draws", "sizes", Path)
    assert said in capsys.readouterr().err


def test_the_file_of_a_benchmark_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "training.json"
    file.write_text('{"sizes": {}}')
    monkeypatch.setattr(sys, "argv", ["scripts/draw_it.py", str(file)])
    script.draw_given(None, "sizes", lambda given: given.with_suffix(".md"))
    assert capsys.readouterr().out == f"wrote {tmp_path / 'training.md'}\n"
