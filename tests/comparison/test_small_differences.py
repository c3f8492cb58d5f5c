"""Differences too small to mean something are not marked, and plots of them are still read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from comparison.made_runs import REFERENCES, only_group, spoilt, write_log, write_run

from seq2seq_attn.comparison import draw as drawing
from seq2seq_attn.comparison import page, significance
from seq2seq_attn.comparison import runs as script
from seq2seq_attn.comparison import translations as translations

GARBAGE = ["zz " * 8] * len(REFERENCES)
LESS_GARBAGE = [f"zz {text.split()[0]} {'zz ' * 6}" for text in REFERENCES]


def written(folder: Path, *hypotheses: list[str], **results: list[Any]) -> Path:
    """A run for each, named a, b, ..."""
    for position, own in enumerate(hypotheses):
        more = {name: values[position] for name, values in results.items()}
        write_run(folder / str(position), "abcdef"[position], own, **more)
    return folder


def ticks(plot: str) -> dict[str, list[tuple[float, str]]]:
    """Of each axis the positions, in points, and the texts."""
    found: dict[str, list[tuple[float, str]]] = {"x": [], "y": []}
    for axis, position, text in re.findall(
        r'-([xy])tick_\d+">.*?<text[^>]* x="([^"]+)"[^>]*>([^<]*)<', plot, re.DOTALL
    ):
        found[axis].append((float(position), text))
    return found


def test_below_1_bleu_and_below_a_twentieth_no_difference_is_significant(tmp_path: Path) -> None:
    group = only_group(written(tmp_path, LESS_GARBAGE, GARBAGE))
    (found,) = group.differences.values()
    assert (found.p, found.significant) == (pytest.approx(1 / 201), False)
    assert found.value == pytest.approx(-0.49, abs=0.01)
    assert "no significant difference: b" in " ".join(script.html_page([group], [], 0).split())
    assert significance.is_notable(1.0, 0.9)
    assert not significance.is_notable(0.99, 0.03)
    assert not significance.is_notable(30.0, 30.04)


def test_the_page_says_below_what_nothing_is_marked(tmp_path: Path) -> None:
    folder = written(tmp_path / "runs", spoilt(9), GARBAGE)
    script.main([str(folder), "--output", str(tmp_path / "page.html"), "--resamples", "50"])
    for file in ("page.html", "page.md"):
        assert "both have less than 1 BLEU" in (tmp_path / file).read_text(encoding="utf-8")
    assert only_group(folder).differences["b"].significant


def test_two_tables_of_one_test_set_mark_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, LESS_GARBAGE, GARBAGE)
    translations.main([str(tmp_path / "0"), str(tmp_path / "1"), "--metrics", "bleu", "--resamples", "100"])
    said = capsys.readouterr().out
    assert "0.0099 " in said
    assert "0.0099*" not in said
    assert translations.FLOOR in said


def test_a_plot_of_one_point_is_not_drawn_nor_its_head(tmp_path: Path) -> None:
    one = written(tmp_path / "one", spoilt(4))
    alike = written(tmp_path / "alike", spoilt(4), spoilt(4))
    for folder in (one, alike):
        write_log(folder / "0", [(9, 20.0)])
        write_log(folder / "1", [(9, 20.0)]) if folder is alike else None
        text = script.html_page([only_group(folder)], [], 0)
        assert "speed of training" not in text
        assert "against size" not in text
        assert text.count("<svg") == (folder is alike)  # its differences
        assert text.count("No run has two of them in metrics.csv.") == 2


def test_the_title_of_the_differences_and_a_point_at_0_are_whole(tmp_path: Path) -> None:
    name = "synthesizer_factorized_random_of_ones_own"
    write_run(tmp_path / "0", name, spoilt(4), attention_entropy=0.0)
    write_run(tmp_path / "1", "b", spoilt(9), attention_entropy=0.5)
    found = only_group(tmp_path, baseline=name)
    with mpl.rc_context(drawing.STYLE):
        forest, scatter = drawing.forest(found), drawing.scatter(found, "attention_entropy")
    width = float(re.findall(r'viewBox="0 0 (\S+)', forest)[0])
    ((anchor, end),) = re.findall(rf'text-anchor: (\w+)" x="([^"]+)"[^>]*>BLEU above {name}<', forest)
    size = 72 * drawing.text_width(f"BLEU above {name}") * (drawing.LABEL + 1) / drawing.LABEL
    right = float(end) + {"end": 0.0, "middle": size / 2}[anchor]
    assert size < right < width
    zero = next(position for position, text in ticks(scatter)["x"] if float(text) == 0)
    assert zero > 0.08 * 72 * drawing.SCATTER[0] + 5.5 / 2  # the axis, and half a point


def test_ticks_are_told_apart_and_stand_apart_where_differences_are_small(tmp_path: Path) -> None:
    hypotheses = [spoilt(6), *(spoilt(6) for _ in range(3))]
    for position in (1, 2, 3):
        hypotheses[position][position + 7] += " x"
    found = only_group(
        written(
            tmp_path,
            *hypotheses,
            tokens_per_second=[1_234_567 + 0.01 * n for n in range(4)],
            decode_sentences_per_second=[10 + 1e-4 * n for n in range(4)],
            attention_entropy=[1e-5 * n for n in range(4)],
            num_parameters=[1_500_000 + 30 * n for n in range(4)],
        )
    )
    close = {label: one._replace(value=2e-4, low=-3e-4, high=9e-4) for label, one in found.differences.items()}
    with mpl.rc_context(drawing.STYLE):
        plots = [drawing.forest(found._replace(differences=close))]
        plots += [drawing.scatter(found, key) for key in ("tokens_per_second", *page.COSTS)]
    for plot in plots:
        axes = ticks(plot)
        for axis, own in axes.items():
            texts = [text for _, text in own]
            assert len(texts) == len(set(texts)) > 2, (axis, texts)
        for (left, one), (right, other) in zip(axes["x"], axes["x"][1:], strict=False):
            wide = 72 * (drawing.text_width(one) + drawing.text_width(other)) / 2
            assert right - left > wide + 3, (one, other)
