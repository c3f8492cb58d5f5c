"""BLEU by minutes: what a program said is found while it runs, scored alike, and stands on the page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch

from scripts.benchmarks import draw_minutes as drawing
from scripts.benchmarks import minutes as script
from seq2seq_attn.errors import UserError

OPTIONS = argparse.Namespace(threads=1, minutes=0.5, lr=0.001, validation_updates=4, override=[])
PROGRAM = """
import pathlib, sys, time
for step in (3, 5):
    time.sleep(1.2)
    pathlib.Path(sys.argv[1], f"{step}.hyps").write_text("x")
"""
CURVES = {
    "ours": {"curve": [{"minutes": 1.0, "updates": 20, "bleu": 11.0}, {"minutes": 2.0, "updates": 40, "bleu": 9.0}],
             "test_bleu": 10.5, "parameters": 2_500_000, "updates": 40},
    "joeynmt": {"curve": [{"minutes": 2.1, "updates": 10, "bleu": 4.25}], "test_bleu": 4.0, "parameters": 2_400_000,
                "updates": 10, "lr": 0.003},
}  # fmt: skip


def test_a_validation_has_the_minutes_at_which_it_came(tmp_path: Path) -> None:
    def found() -> dict[int, float | None]:
        return {int(file.stem): 1.0 for file in tmp_path.glob("*.hyps")}

    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    curve = script.watched(command, tmp_path / "log", OPTIONS, found)
    assert [point["updates"] for point in curve] == [3, 5]
    first, second = (point["minutes"] * 60 for point in curve)
    assert 1 < first < second


def test_what_has_run_before_with_the_same_settings_is_not_run_again(tmp_path: Path) -> None:
    started = []

    def train(folder: Path) -> dict[str, float]:
        started.append(folder.is_dir())
        folder.mkdir()
        return {"test_bleu": 0.25 + len(started)}

    folder = tmp_path / "ours"
    folder.mkdir()  # of a start that was stopped
    for _ in range(2):
        assert script.cached(folder, ["lr 1"], train) == {"test_bleu": 1.25}
    assert script.cached(folder, ["lr 2"], train) == {"test_bleu": 2.25}
    assert started == [False, False]


def test_a_program_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such corpus')"]
    with pytest.raises(UserError, match="failed: no such corpus"):
        script.watched(command, tmp_path / "log", OPTIONS, dict)
    with pytest.raises(UserError, match="failed"):  # it validated nothing
        script.watched([sys.executable, "-c", "pass"], tmp_path / "log", OPTIONS, dict)


def test_both_are_scored_against_all_references() -> None:
    references = [["le chat dort bien ici", "le chat y dort bien"], ["oui , c'est vrai ."]]
    assert script.bleu(["le chat y dort bien", "oui , c'est vrai ."], references) == pytest.approx(100)


def test_lines_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes("a\u2028b\n\nc\n".encode())
    assert script.lines_of(tmp_path / "said") == ["a\u2028b", "", "c"]


def test_a_tied_weight_counts_once(tmp_path: Path) -> None:
    weight = torch.zeros(5, 7)
    state = {"embed": weight, "output": weight, "bias": torch.zeros(3)}
    torch.save({"model_state": state}, tmp_path / "best.ckpt")
    assert script.parameters_of(tmp_path) == 38


def test_the_page_has_the_figures_and_the_command(tmp_path: Path) -> None:
    results = {
        "programs": CURVES,
        "minutes": 0.5,
        "threads": 1,
        "tokens": 800,
        "dim": 256,
        "sentences": {"train": 3861, "val": 50, "test": 51},
        "command": script.command_of(OPTIONS),
        "machine": {"processor": "a processor", "torch": "2.13.0"},
    }
    file = tmp_path / "minutes.json"
    file.write_text(json.dumps(results), encoding="utf-8")
    text = drawing.draw(file).read_text(encoding="utf-8")
    assert "| ours | 10.5 | 11.0 | 1.0 | 40 | 2.50 |" in text
    assert "| JoeyNMT 2.3 | 4.0 | 4.2 | 2.1 | 10 | 2.40 |" in text
    assert "(at first 0.003)" in text
    assert "`python -m scripts.benchmarks.minutes --minutes 0.5 --threads 1 --lr 0.001" in text
    assert file.with_suffix(".png").stat().st_size > 5000
