"""The benchmark on a GPU: its page, which rows are kept, and what it says where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.benchmarks import gpu

ABOUT = {"device": "some GPU", "torch": "2", "python": "3", "positions": 4096}


def layer(preset: str, length: int, seconds: float) -> dict[str, Any]:
    row = {"preset": preset, "dtype": "bfloat16", "length": length}
    return row | {"seconds": seconds, "reference_seconds": 0.004, "memory": 3 * 2**20}


def write(file: Path, *rows: dict[str, Any]) -> None:
    file.write_text(json.dumps({"about": ABOUT, "commands": ["before"], "rows": rows}), encoding="utf-8")


def test_the_page_has_times_ratios_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    failed = {"preset": "local", "dtype": "bfloat16", "length": 2048, "outcome": gpu.OUT_OF_MEMORY}
    write(file, layer("multihead", 512, 0.004), layer("local", 512, 0.002), layer("multihead", 2048, 0.004), failed)
    gpu.main(["--draw", "--output", str(file)])
    page = file.with_suffix(".md").read_text(encoding="utf-8")
    assert "| patterns | `local` | 2.00 (2.00 ×), 3 | out of memory |" in page
    assert "some GPU" in page
    assert "\nbefore\n" in page
    assert (tmp_path / "gpu_bfloat16.png").is_file()


@pytest.mark.slow
def test_a_row_takes_the_place_of_an_older_one_of_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gpu.json"
    write(file, layer("local", 512, 0.002), layer("local", 2048, 0.002), layer("multihead", 512, 0.004))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "about", lambda options: ABOUT)
    monkeypatch.setattr(gpu, "measured", lambda preset, dtype, length, options: layer(preset, length, 0.001))
    gpu.main(["--presets", "local", "--output", str(file), "--lengths", "512"])
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["preset"], row["length"], row["seconds"]) for row in found["rows"]] == [
        ("local", 2048, 0.002),
        ("multihead", 512, 0.004),
        ("local", 512, 0.001),
    ]
    assert found["commands"] == ["before", "python -m scripts.benchmarks.gpu --presets local --lengths 512"]


def test_figures_of_another_gpu_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu.json"
    write(file, layer("local", 512, 0.002))
    before = file.read_bytes()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another GPU")
    with pytest.raises(SystemExit):
        gpu.main(["--output", str(file)])
    assert "has figures of another GPU, torch or --positions; give another --output" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_machine_without_a_gpu_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for words, said in (([], "finds no GPU"), (["--draw"], "is not there; measure first")):
        with pytest.raises(SystemExit):
            gpu.main([*words, "--output", str(tmp_path / "gpu.json")])
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
