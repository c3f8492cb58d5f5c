"""The benchmark of feature maps runs, and its file and its lines hold the same figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmarks import kernel_attention as script


@pytest.mark.slow
def test_every_preset_has_a_figure_beside_that_of_the_softmax(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--lengths", "70", "--threads", "1", "--repeats", "1", "--dim", "16", "--heads", "2"]
    script.main([*small, "--output", str(tmp_path / "figures.json")])
    written = json.loads((tmp_path / "figures.json").read_text())
    rows = [dict(zip(written["columns"], row, strict=True)) for row in written["rows"]]
    names = ["multihead", "linear", "performer", "cosformer"]
    assert [row["preset"] for row in rows] == names * 4
    assert {(row["causal"], row["backward"]) for row in rows} == {(a, b) for a in (False, True) for b in (False, True)}
    assert all(row["seconds"] > 0 and row["memory"] > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
