"""Error messages of the drawing scripts for files of other kinds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.benchmarks import figures_file as script


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "nothing.json: No such file or directory; use the .json"),
        (b"# A page", "nothing.json is not a JSON file"),
        (b"\xff\xfe", "nothing.json is not a JSON file"),
        (b'{"figures": []}', "nothing.json has no 'sizes', so it is from another benchmark than draw_it.py draws"),
        (b"[1, 2]", "nothing.json has no 'sizes'"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_one_sentence(
    content: bytes | None,
    message: str,
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
    assert message in capsys.readouterr().err


def test_the_file_of_a_benchmark_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "training.json"
    file.write_text('{"sizes": {}}')
    monkeypatch.setattr(sys, "argv", ["scripts/draw_it.py", str(file)])
    script.draw_given(None, "sizes", lambda given: given.with_suffix(".md"))
    assert capsys.readouterr().out == f"wrote {tmp_path / 'training.md'}\n"


@pytest.mark.parametrize(
    ("commits", "text"),
    [
        ([None, ""], "commit not recorded"),
        ([], "commit not recorded"),
        (["a" * 40, "a" * 40], "commit `aaaaaaaa`"),
        (["b" * 40 + "-changed", "a" * 40], "commits `aaaaaaaa`, `bbbbbbbb-changed`"),
        (["a" * 40, None], "commit `aaaaaaaa`, of some figures not recorded"),
    ],
)
def test_a_commit_that_is_not_recorded_is_called_so(commits: list[str | None], text: str) -> None:
    assert script.commit_text(commits) == text
