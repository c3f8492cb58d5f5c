"""The table of every preset: models of one size, a command for each row, and no row lost without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison.made_runs import spoilt, write_run
from configs import attentions_at_once
from training.test_tables import TINY, write_captions

from scripts.benchmarks import presets as script

FEW = ("multihead", "none", "bahdanau", "synthesizer_factorized_dense")  # of few weights and of many
PRESETS = [pytest.param(p, marks=[] if p in FEW else pytest.mark.slow) for p in attentions_at_once()]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_weights_of_the_standard_within_half_a_unit_of_each_layer(preset: str) -> None:
    width, standard = script.equal_width(preset), script.composed("multihead").feed_forward.ff_dim
    assert width == standard or preset != "multihead"
    total, of_one = (script.num_parameters("multihead", standard + more) for more in (0, 1))
    assert 2 * abs(script.num_parameters(preset, width) - total) <= of_one - total


def test_an_attention_that_leaves_nothing_for_the_feed_forward_layers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_model = {"multihead": 1000, "huge": 9000}
    monkeypatch.setattr(script, "num_parameters", lambda preset, width: of_model[preset] + 2 * width)
    assert script.equal_width("multihead") == script.composed("multihead").feed_forward.ff_dim
    with pytest.raises(ValueError, match="huge has more weights than a model of multihead; give"):
        script.equal_width("huge")


@pytest.mark.slow
@pytest.mark.parametrize("presets", [["none"], ["multihead", "none"]])
def test_every_row_runs_as_its_command_says_and_stands_on_the_page(presets: list[str], tmp_path: Path) -> None:
    captions = tmp_path / "captions"
    captions.mkdir()
    write_captions(captions)
    small = [override for override in TINY if "choices." not in override]
    runs, page = tmp_path / "runs", tmp_path / "docs" / "presets.html"
    given = ["--presets", *presets, "--runs", str(runs), "--output", str(page)]
    given_to_all = [*small, f"paths.cache_dir={tmp_path}"]
    script.main([*given, "--data", str(captions), "--override", *given_to_all])
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    for preset in presets:
        results = json.loads((runs / preset / "1" / "results.json").read_text(encoding="utf-8"))
        assert results["attention"] == preset
        assert f"python train.py {' '.join([*script.command(preset, 1), *given_to_all])}`" in text
        assert f"| {preset} | 1 | " in text
    assert str(captions) not in text
    assert f"scripts.benchmarks.presets --jobs 2 --presets {' '.join(presets)} --override" in text
    before = (runs / "none" / "1" / "output.txt").stat().st_mtime_ns
    script.main([*given, "--data", str(captions), "--override", *given_to_all])
    assert (runs / "none" / "1" / "output.txt").stat().st_mtime_ns == before  # was not run again
    with pytest.raises(SystemExit):  # other overrides
        script.main([*given, "--data", str(captions)])


def finished_as(folder: Path, overrides: list[str]) -> None:
    """Note in the folder of a run what train.py was given."""
    command = ["train.py", *overrides, f"hydra.run.dir={folder}", "resume=auto", "data.path=anywhere"]
    (folder / "provenance.json").write_text(json.dumps({"command": command}), encoding="utf-8")


def test_a_complete_run_with_other_overrides_is_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "none" / "1"
    write_run(folder, "none", spoilt(4))
    finished_as(folder, [*script.command("none", 1), "optimizer.lr=0.1"])
    given = ["--presets", "none", "--runs", str(tmp_path), "--output", str(tmp_path / "page.html"), "--override"]
    with pytest.raises(SystemExit):
        script.main(given)
    assert "differ from this command's in optimizer.lr=0.1; give another --runs" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
    script.main([*given, "optimizer.lr=0.1"])
    assert (tmp_path / "page.html").exists()


def test_a_row_that_fails_is_named_beside_a_page_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(command: list[str], **_: Any) -> Any:
        return type("Ended", (), {"returncode": int("attention=hard" in command)})

    runs = tmp_path / "runs"
    write_run(runs / "none" / "1", "none", spoilt(4))
    finished_as(runs / "none" / "1", script.command("none", 1))
    monkeypatch.setattr(script.subprocess, "run", ends)
    given = ["--presets", "hard", "none", "local", "--runs", str(runs), "--output", str(tmp_path / "page.html")]
    with pytest.raises(SystemExit, match=r"2 of 3 runs failed: .*; repeat the command to run"):
        script.main(given)
    said = capsys.readouterr().out
    assert "hard/1 failed" in said
    assert "local/1 failed" in said  # it left with 0, and has no results
    assert "| none | 1 |" in (tmp_path / "page.md").read_text(encoding="utf-8")
