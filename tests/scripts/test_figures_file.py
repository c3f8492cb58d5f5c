"""What the drawing scripts answer to a file that is none of theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from load_script import load_script

script = load_script("figures_file")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "nothing.json: No such file or directory; give the .json"),
        (b"# A page", "nothing.json is no JSON"),
        (b"\xff\xfe", "nothing.json is no JSON"),
        (
            b'{"figures": []}',
            "nothing.json holds no 'sizes': it is of another benchmark than draw_it.py draws",
        ),
        (b"[1, 2]", "nothing.json holds no 'sizes'"),
    ],
)
def test_a_file_of_another_kind_is_told_in_a_sentence(
    content: bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nothing.json"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["scripts/draw_it.py", str(file)])
    with pytest.raises(SystemExit) as stop:
        script.figures_file("what it draws", "sizes")
    assert said in str(stop.value)


def test_the_file_of_a_benchmark_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "training.json"
    file.write_text('{"sizes": {}}')
    monkeypatch.setattr(sys, "argv", ["scripts/draw_it.py", str(file)])
    assert script.figures_file(None, "sizes") == file
