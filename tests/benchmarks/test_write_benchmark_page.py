"""The page of the benchmark says of its figures what they are, and draws them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.benchmarks import attention_layers
from scripts.benchmarks import write_benchmark_page as page


def run(way: str, length: int, seconds: float, **more: Any) -> Any:
    pattern, k = ("", 0) if way in ("full", "masked") else ("local", 32)
    found = {"way": way, "pattern": pattern, "k": k, "both": True, "causal": False, "threads": 2, "memory": None}
    return page.Run(**(found | {"length": length, "seconds": seconds} | more))


def test_time_that_grows_with_the_square_of_the_length_has_exponent_2() -> None:
    runs = [run("full", n, 3e-9 * n**2) for n in (1024, 2048, 8192)]
    assert page.exponent([run("full", 512, 1.0), *runs, run("full", 16384, 1.0)]) == pytest.approx(2)
    assert math.isnan(page.exponent(runs[:1]))


@pytest.mark.parametrize(("value", "words"), [(9.9, "no"), (10, "yes"), (16, "**more**"), (math.nan, "–")])
def test_a_verdict_compares_with_what_was_asked_and_what_was_hoped_for(value: float, words: str) -> None:
    assert page.verdict(value, 10, 16) == words


def test_blocks_are_chosen_behind_the_last_length_that_goes_dense() -> None:
    runs = [run("full", n, 1.0) for n in (64, 128, 256)]
    runs += [run("automatic", 64, 1.0), *(run("blocks", n, s) for n, s in ((64, 2.0), (128, 1.1), (256, 0.5)))]
    assert list(page.thresholds(runs)) == [("local", 32, 128, 256)]


def test_a_row_of_a_section_is_met_if_all_its_cells_are() -> None:
    cases = [
        ("all", "local", 1.0, 1.7),
        ("all", "sparse", 1.0, 1.68),
        ("few", "local", 1.0, 1.7),
        ("few", "sparse", 1.0, 1.6),
    ]
    figures = [["half_padding", *case] for case in cases] + [["training", "a step", "local", 1.0, 1.4]]
    text = "\n".join(page.in_models({"threads": 2}, figures))
    assert "Processor not recorded, commit not recorded." in text
    assert "| all | 1.700 | 1.680 | yes |" in text
    assert "| few | 1.700 | 1.600 | no |" in text
    assert "| a step | 1.40 |\n" in text
    assert "a batch with padding: 1 of 4" in next(page.others_at_a_glance([run("full", 64, 1.0)], figures))
    assert math.isnan(page.required("layer", "4096 positions, its attention alone", "local"))
    assert page.required("layer", "4096 positions", "sparse") == 2.2


def test_figures_of_layers_name_their_processor_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = attention_layers.Figure("layer", "16 positions", "local", 1.0, 2.0)
    monkeypatch.setattr(attention_layers, "SECTIONS", {"layer": lambda _: [figure]})
    monkeypatch.setattr(attention_layers, "processor", lambda: "A, family 1 model 2")
    monkeypatch.setattr(attention_layers, "commit", lambda: "c" * 40)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["attention_layers.py", "--output", str(tmp_path / "layers.json")])
    attention_layers.main()
    text = "\n".join(page.in_models(*page.read(tmp_path / "layers.json")))
    assert "Processor A, family 1 model 2, commit `cccccccc`." in text


def test_the_page_shows_the_ratio_to_full_attention_and_its_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {
        "device": "cpu",
        "dtype": "float32",
        "torch": "2",
        "batch": 1,
        "heads": 8,
        "width": 64,
        "arguments": "--k 32",
    }
    runs = [run("full", 4096, 7.0, memory=6.5), run("blocks", 4096, 0.25, memory=6.25)]
    lucidrains = run("lucidrains", 4096, 0.5, memory=25.0)
    figures = [row[:9] for row in (*runs, lucidrains)]
    (tmp_path / "core.json").write_text(json.dumps({"about": about, "figures": figures}), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["write_benchmark_page.py", "--folder", str(tmp_path), "--figures", "core.json"])
    page.main()
    text = (tmp_path / "attention.md").read_text(encoding="utf-8")
    assert "| local, k = 32, both sides | 4096 | 20, 30 | 28.0 | yes |" in text
    assert "| local 32 | 6.25 |" in text
    assert "| lucidrains | local | both sides | both passes | 4096 | 2.0 | 0.25 | yes |" in text
    assert "The core: processor not recorded, commit not recorded." in text
    assert "whose tables are below: lucidrains' local-attention at 4096 positions: 0 of 1." in text
    assert (tmp_path / "attention_both_sides.png").stat().st_size > 1000
