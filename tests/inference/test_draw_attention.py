"""The command that draws the attention of a sentence refuses what it cannot draw, and says what it drew otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_checkpoint import write_checkpoint

from seq2seq_attn.alignment.heat_map import without_glyph
from seq2seq_attn.inference.draw_attention import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "model.ckpt", sentences=["a \u4e2d\u6587 cat sees the red house"])
    return tmp_path / "model.ckpt"


def said(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["draw attention", *map(str, arguments)])
    main()


@pytest.mark.parametrize(
    ("sentence", "output", "why"),
    [
        ("a cat", "output=map", "output=map holds '=', as an option of translate.py does; give the path alone"),
        ("a cat", "output=maps/cat", "output=maps/cat holds '='"),
        ("a cat", "beam=5", "beam=5 holds '='"),
        (" ", "map", "the sentence is empty, so there is nothing to draw"),
        ("a cat", ".png", ".png has no name for the pictures; give a path such as map"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_model_is_read(
    sentence: str, output: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        said(monkeypatch, "nowhere", sentence, output)
    assert why in capsys.readouterr().err


def test_a_sentence_of_no_token_is_named_as_that(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        said(monkeypatch, model, "\x01", model.parent / "nothing")
    assert "the sentence has no token, so there is nothing to draw" in capsys.readouterr().err


@pytest.mark.usefixtures("no_further_fonts")
def test_a_picture_is_named_once_and_boxes_are_counted(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said(monkeypatch, model, "a \u4e2d\u6587 cat", model.parent / "map.png")
    printed = capsys.readouterr()
    files = [Path(line) for line in printed.out.splitlines()]
    assert "note: letters that no installed font has are drawn as boxes (2); install one for them" in printed.err
    assert files
    assert all(file.is_file() and file.name.startswith("map") and file.name.count(".png") == 1 for file in files)
    assert without_glyph("\u2581\u4e2d\u6587a") == {"\u4e2d", "\u6587"}


def test_a_model_whose_attention_has_no_weights_draws_nothing_and_says_so(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq_attn.inference.engine.attention_along_batch", lambda *given: [[] for _ in given[2]])
    with pytest.raises(SystemExit, match="2"):
        said(monkeypatch, model, "a cat", model.parent / "map.png")
    assert capsys.readouterr().err == f"the attention of {model} has no weights to draw\n"
