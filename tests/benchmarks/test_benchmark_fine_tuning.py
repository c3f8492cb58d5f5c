"""The benchmark of fine-tuning: its subset of the captions, its commands, what it repeats, and its page."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from configs import composed

from scripts.benchmarks import fine_tuning as script
from seq2seq_attn.errors import UserError


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    folder = tmp_path / "captions"
    folder.mkdir()
    for split in ("train", "val", script.TEST):
        for language in script.LANGUAGES:
            text = "".join(f"{split} {language} {n}\n" for n in range(9))
            (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_the_training_split_alone_is_cut(captions: Path, tmp_path: Path) -> None:
    script.write_captions(captions, tmp_path / "cut", 4)
    lines = {file.name: file.read_text().splitlines() for file in (tmp_path / "cut").iterdir()}
    assert lines["train.en"] == [f"train en {n}" for n in range(4)]
    assert {name: len(found) for name, found in lines.items() if not name.startswith("train")} == {
        f"{split}.{language}": 9 for split in ("val", script.TEST) for language in script.LANGUAGES
    }
    (captions / "val.fr.gz").unlink()
    with pytest.raises(
        UserError, match=r"has no val.fr or val.fr.gz; give the folder of Multi30k's captions as --data"
    ):
        script.write_captions(captions, tmp_path / "cut", 4)


def test_the_model_without_a_parent_has_the_architecture_of_the_parents() -> None:
    ours = composed(*script.overrides("scratch", 1, "PARENT", "FOLDER"))
    assert ours.model == composed("data=tatoeba").model
    assert composed(*script.overrides("tuned", 2, "PARENT", "FOLDER")).seed == 2


def test_complete_runs_are_not_repeated_and_the_page_has_means_and_gains(
    captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Namespace:
        started.append(command)
        folder = Path(next(word.partition("=")[2] for word in command if word.startswith("hydra.run.dir=")).strip('"'))
        name, seed = folder.name.split("_")
        bleu = {"parent": 20.0, "scratch": 10.0, "tuned": 30.0}[name] + int(seed) * (name == "tuned")
        found = {"splits": {"test": {"bleu": bleu}}} if name == "parent" else {"test/bleu": bleu}
        (folder / ("evaluation.json" if name == "parent" else "results.json")).write_text(json.dumps(found))
        return Namespace(returncode=0)

    monkeypatch.setattr(script, "commit", lambda: "0123456789")
    monkeypatch.setattr(script.subprocess, "run", run)
    for name, epochs in (("a", 5), ("b", 5), ("c", 6)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"trainer: {{max_epochs: {epochs}}}\n")
    parents = [str(tmp_path / name) for name in "abc"]
    given = ["--parents", *parents[:2], "--data", str(captions), "--pairs", "4", "--runs", str(tmp_path / "runs")]
    for _ in range(2):
        script.main([*given, "--output", str(tmp_path / "page.md")])
        monkeypatch.setattr(script, "commit", lambda: "fedcba9876")  # with which no run is made
    assert len(started) == 6
    assert all("resume=auto" in command for command in started if "train.py" in command[1])
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| the parent, fine-tuned on the captions | 31.0 | 32.0 | 31.5 ± 0.7 |" in page
    assert "fine-tuning gains 11.5 ± 0.7 BLEU over the parent and 21.5 ± 0.7 over training" in page
    assert "data=tatoeba trainer.max_epochs=5 seed=SEED" in page
    assert "\nCommit 0123456, torch " in page
    assert str(tmp_path) not in page
    with pytest.raises(SystemExit):
        script.main([*given[:1], *parents[1:], *given[3:]])
    assert "the parents were trained for [5, 6] epochs; give runs of equal length" in capsys.readouterr().err
    for option in (
        ["--data", str(tmp_path)],
        ["--override", "optimizer.lr=0.1"],
        ["--seeds", "2", "1"],
        ["--pairs", "5"],
    ):
        with pytest.raises(SystemExit):
            script.main([*given, *option, "--output", str(tmp_path / "page.md")])
        said = capsys.readouterr().err
        assert f"{tmp_path / 'runs'} has runs with " in said, option
    assert "runs with --pairs 4, not 5; give another" in said
    assert len(started) == 6
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: Namespace(returncode=2))
    (tmp_path / "runs" / "tuned_2" / "results.json").unlink()
    with pytest.raises(SystemExit):
        script.main([*given, "--output", str(tmp_path / "page.md")])
    assert "train.py data=multi30k" in (said := capsys.readouterr().err)
    assert " failed: " in said
