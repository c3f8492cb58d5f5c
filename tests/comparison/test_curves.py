"""Learning curves of runs, drawn and kept as points that can be drawn again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comparison.made_runs import write_log
from PIL import Image

from seq2seq_attn.comparison import curves as script


def written(folder: Path, *validations: tuple[int, float]) -> Path:
    folder.mkdir()
    write_log(folder, validations)
    return folder


def test_points_are_validations_after_their_updates_by_the_name_given(tmp_path: Path) -> None:
    first, second = written(tmp_path / "1", (9, 20.0), (19, 60.0)), written(tmp_path / "2", (4, 5.5))
    script.main([str(first), f"second={second}", "--output", str(tmp_path / "made" / "both.png")])
    assert (tmp_path / "made" / "both.tsv").read_text(encoding="utf-8").splitlines() == [
        "run\tupdates\tval/bleu",
        "1\t10\t20",
        "1\t20\t60",
        "second\t5\t5.5",
    ]
    with Image.open(tmp_path / "made" / "both.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 2


@pytest.mark.parametrize("suffix", script.PICTURES)
def test_a_file_of_the_users_beside_the_picture_is_not_overwritten(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, mine = written(tmp_path / "run", (9, 20.0)), tmp_path / "pairs.tsv"
    typed = [str(run), "--output", str(tmp_path / f"pairs{suffix}")]
    mine.write_text("a cat\tun chat\n")
    with pytest.raises(SystemExit, match="2"):
        script.main(typed)
    assert (
        f"{mine} would be written beside {tmp_path / f'pairs{suffix}'} and holds something" in capsys.readouterr().err
    )
    assert mine.read_text() == "a cat\tun chat\n"
    mine.unlink()
    for _ in range(2):  # what it has written itself may be written again
        script.main(typed)


@pytest.mark.parametrize(("suffix", "beside"), [(".png", ""), (".pdf", ".png")])
def test_a_picture_of_the_users_is_not_overwritten(
    suffix: str, beside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, photo = written(tmp_path / "run", (9, 20.0)), tmp_path / f"photo{suffix}"
    if beside:
        script.main([str(run), "--output", str(tmp_path / f"photo{beside}")])
    curves = tmp_path / "photo.tsv"
    before = curves.read_bytes() if beside else None
    photo.write_bytes(b"a photograph")
    with pytest.raises(SystemExit, match="2"):
        script.main([str(run), "--output", str(photo)])
    said = f"{photo} already exists and is not a picture of seq2seq-attn draw curves; give another --output"
    assert said in capsys.readouterr().err
    assert photo.read_bytes() == b"a photograph"
    assert (curves.read_bytes() if curves.exists() else None) == before


def test_points_written_are_drawn_with_a_later_run_and_give_way_to_one_of_their_name(tmp_path: Path) -> None:
    points = tmp_path / "points.tsv"
    points.write_text("run\tupdates\tval/bleu\nold\t3\t1.500\nagain\t3\t2.000\n", encoding="utf-8")
    again = written(tmp_path / "again", (6, 7.0))
    curves = script.read([str(points), str(again)], "val/bleu")
    assert curves == {"old": [(3, 1.5)], "again": [(7, 7.0)]}


def test_curves_with_names_of_their_own_take_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = tmp_path / "points.tsv"
    points.write_text("run\tupdates\tval/bleu\nold\t3\t1.5\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        script.main([f"new={points}", "--output", str(tmp_path / "x.png")])
    said = f"new={points} names curves that have their names in {points}; give {points} alone"
    assert said in capsys.readouterr().err


def test_a_folder_whose_name_is_not_utf_8_is_drawn(tmp_path: Path) -> None:
    run = written(tmp_path / os.fsdecode(b"lat\xe9"), (6, 7.0))
    script.main([str(run), "--output", str(tmp_path / "x.png")])
    assert "lat\ufffd\t7\t7\n" in (tmp_path / "x.tsv").read_text("utf-8")


def test_a_folder_with_an_equals_sign_is_no_name(tmp_path: Path) -> None:
    folder = written(tmp_path / "seed=1", (6, 7.0))
    assert script.read([str(folder), f"x={folder}"], "val/bleu") == {"seed=1": [(7, 7.0)], "x": [(7, 7.0)]}


def test_the_folder_one_stands_in_is_named_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path / "run", (6, 7.0)))
    assert script.read(["."], "val/bleu") == {"run": [(7, 7.0)]}


def test_the_axis_begins_where_asked(tmp_path: Path) -> None:
    run = written(tmp_path / "1", (9, 50.0), (19, 60.0))
    script.main([str(run), "--lowest", "40", "--output", str(tmp_path / "x.svg")])
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "<!-- 40.0 -->" in text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("", None, "has logged no val/chrf; --figure is one of train/loss, val/bleu"),
        ("/nowhere", None, "/nowhere does not exist; give run folders of train.py, or NAME=RUN"),
        ("/none.tsv", None, "none.tsv does not hold curves (No such file or directory)"),
        ("/other.tsv", "a\tb\n", "its header is not run, updates, val/chrf"),
        ("/cut.tsv", "run\tupdates\tval/chrf\nx\t3\n", "cut.tsv does not hold curves"),
        ("/empty.tsv", "", "empty.tsv does not hold curves"),
        ("/long.tsv", "x" * 200_000, "does not hold curves (field larger than"),
    ],
)
def test_what_is_no_run_is_told_in_a_sentence(
    name: str, content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written(tmp_path / "run", (9, 20.0))
    position = f"{run}{name}"
    if content is not None:
        Path(position).write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit):
        script.main([position, "--figure", "val/chrf", "--output", str(tmp_path / "x.png")])
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x.png").exists()


def test_a_figure_that_was_nan_is_a_gap(tmp_path: Path) -> None:
    run = written(tmp_path / "run", (9, float("nan")))
    script.main([str(run), "--output", str(tmp_path / "x.png")])
    assert (tmp_path / "x.tsv").read_text(encoding="utf-8").splitlines()[1:] == ["run\t10\tnan"]


@pytest.mark.parametrize(
    ("runs", "output", "said"),
    [
        (["a/0", "b/0"], "x.png", "two runs are named 0; name"),
        (["a.tsv", "b.tsv"], "x.png", "two files have the curve 0, the second in"),
        (["a/0"], "x.bmp", "x.bmp does not name a picture; end it in one of .png, .svg, .pdf"),
        (["a/0"], "x", "x does not name a picture"),
    ],
)
def test_nothing_is_lost_silently(
    runs: list[str], output: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "0", (9, 20.0))
        (tmp_path / f"{name}.tsv").write_text("run\tupdates\tval/bleu\n0\t10\t20\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        script.main([*(str(tmp_path / run) for run in runs), "--output", str(tmp_path / output)])
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("x*"))


def test_every_name_is_in_the_legend_as_it_is_given(tmp_path: Path) -> None:
    run = written(tmp_path / "run", (9, 20.0))
    names = ["_plain", r"a $\foo$"]
    script.main([*(f"{name}={run}" for name in names), "--output", str(tmp_path / "made.svg")])
    drawn = (tmp_path / "made.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in drawn for name in names)
