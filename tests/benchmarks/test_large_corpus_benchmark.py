"""Figures of a corpus larger than memory are those of one number of pairs and of one processor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmarks import large_corpus as script


def test_figures_of_other_pairs_or_of_another_processor_get_no_further_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures.json"
    monkeypatch.setattr(script, "TASKS", {"encode": lambda *_: pytest.fail("measured")})
    for changed, said in (({"pairs": 7}, "pairs 7, not 11; give"), ({"processor": "A"}, "processor A, not ")):
        output.write_text(json.dumps({"pairs": 11, "processor": script.processor()} | changed), encoding="utf-8")
        with pytest.raises(SystemExit):
            script.main(["encode", "--folder", str(tmp_path), "--pairs", "11", "--output", str(output)])
        assert f"figures of {said}" in capsys.readouterr().err
