"""The cost curves: a row for every preset and length, what does not fit too, and no row measured twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from configs import attentions_at_once
from PIL import Image

from scripts.benchmarks import cost_curves as script
from seq2seq_attn.errors import UserError

SMALL = ["--width", "16", "--heads", "8", "--repeats", "1", "--least", "1"]
FEW = ("multihead", "hard", "luong_location", "synthesizer_random_dense")  # with tables of positions and without
PRESETS = [pytest.param(p, marks=[] if p in FEW else pytest.mark.slow) for p in attentions_at_once()]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_takes_a_step_of_more_positions_than_its_tables_have_by_default(preset: str) -> None:
    options = script.parse([*SMALL, "--gib", "0"])
    layer = script.build(preset, 300, options)
    names = list(script.options_called("max_length", script.compose_factory(preset)))
    parts = {name.partition(".")[0] for name in names}  # the score, or the feature map
    assert all(getattr(layer.attention, part).max_length == 300 for part in parts)
    assert script.family(preset) in script.FAMILIES
    script.step(layer, script.torch.randn(1, 7, 16, requires_grad=True), causal=True)


def test_tables_inside_a_mixture_are_found() -> None:
    factory = script.compose_factory("synthesizer_random_dense")
    found = sorted(script.options_called("max_length", factory))
    assert found == ["score.scores.dense.max_length", "score.scores.random.max_length"]


@pytest.mark.parametrize(
    ("preset", "family"),
    [
        ("multihead", "scores"),
        ("local", "patterns"),
        ("entmax15", "normalizers"),
        ("synthesizer_random_vanilla", "synthesizers"),
        ("linear", "feature maps"),
        ("gated_delta", "delta rule"),
    ],
)
def test_a_preset_belongs_to_the_part_in_which_it_differs(preset: str, family: str) -> None:
    assert script.family(preset) == family


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Rows in this process instead of one of their own, without its limit of memory; a dense one of 64 fails."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command[-4:])
        options = script.parse(command[3:])
        preset, causal, threads, length = options.row
        if length == "64" and preset == "none":
            return subprocess.CompletedProcess(command, -9, "", "")
        row = script.measure(script.Row(preset, causal == "1", int(threads), int(length)), options)
        return subprocess.CompletedProcess(command, 0, f"a warning\n{json.dumps(row)}\n", "")

    monkeypatch.setattr(script, "limit_memory", lambda gib: None)
    monkeypatch.setattr(script, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(script, "commit", lambda: "0123456789")
    monkeypatch.setattr(script.subprocess, "run", run)
    return commands


@pytest.mark.slow
def test_rows_are_written_and_drawn_and_measured_once(processes: list[list[str]], tmp_path: Path) -> None:
    output = tmp_path / "docs" / "costs.json"
    given = [*SMALL, "--presets", "multihead", "none", "--output", str(output)]
    script.main([*given, "--lengths", "16", "32"])
    assert [command[0] for command in processes] == ["multihead"] * 2 + ["none"] * 2
    script.main([*given, "--lengths", "16", "32", "64", "128"])
    assert processes[4:] == [
        ["multihead", "0", "1", "64"],
        ["multihead", "0", "1", "128"],
        ["none", "0", "1", "64"],  # 128 positions do not fit where 64 do not
    ]
    rows = [script.Row(*row) for row in json.loads(output.read_bytes())["rows"]]
    assert {(row.preset, row.length): row.outcome for row in rows if row.outcome} == {
        ("none", 64): "out of memory",
        ("none", 128): "out of memory",
    }
    assert all(row.seconds > 0 and row.memory > 16 * 16 * 4 for row in rows if not row.outcome)
    page = output.with_suffix(".md").read_text(encoding="utf-8")
    assert json.loads(output.read_bytes())["commits"] == ["0123456789"]
    assert "; commit `01234567`." in page
    assert "The tables have 2 of the " in page
    assert page.count("| scores | `none` |") == 2
    assert page.count("out of memory | out of memory |") == 2
    assert "![Time and memory by length, Both sides, threads: 1](costs_both_sides_1.png)" in page
    assert output.with_name("costs_both_sides_1.png").stat().st_size > 10_000


@pytest.mark.slow  # rows that are drawn are tested above
def test_a_page_drawn_again_names_the_commands_that_measured(processes: list[list[str]], tmp_path: Path) -> None:
    output = tmp_path / "costs.json"
    given = [*SMALL, "--presets", "multihead", "--output", str(output)]
    for lengths in (["16", "24"], ["32"], ["16", "32"]):  # the last finds all of its rows
        script.main([*given, "--lengths", *lengths])
    page = output.with_suffix(".md").read_text(encoding="utf-8")
    made = "python -m scripts.benchmarks.cost_curves --presets multihead --lengths {} --width 16 --repeats 1 --least 1"
    commands = [f"`{made.format(lengths)} --output costs.json`" for lengths in ("16 24", "32")]
    assert "positions of width 16" in page
    assert f"\nMade by {' and '.join(commands)}" in page
    output.with_suffix(".md").unlink()
    script.main(["--draw", "--output", str(output)])
    assert output.with_suffix(".md").read_text(encoding="utf-8") == page


@pytest.mark.slow
def test_a_plot_of_several_families_is_no_wider_than_a_page(tmp_path: Path) -> None:
    families = {"multihead": "scores", **{name: name for name in script.FAMILIES[1:5]}}
    rows = [script.Row(preset, False, 1, 128, "", 1.0, 1.0, 2**20) for preset in families]
    script.plot(rows, families, tmp_path / "plot.png", "")
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.size == (1100, 340 * 4)  # labels stay readable, and no row has `multihead` alone


def test_figures_of_another_width_are_not_continued(processes: list[list[str]], tmp_path: Path) -> None:
    given = ["--presets", "multihead", "--lengths", "16", "--output", str(tmp_path / "costs.json")]
    script.main([*SMALL, *given])
    with pytest.raises(UserError, match=r"costs.json has figures of another width; give another file by --output"):
        script.missing(script.read(script.parse([*SMALL, *given, "--width", "32"])), script.parse(given))


@pytest.mark.slow
def test_a_length_that_does_not_fit_is_a_row(tmp_path: Path) -> None:
    output = tmp_path / "costs.json"
    given = [*SMALL, "--presets", "bahdanau", "--lengths", "16", "2048", "--gib", "0.3", "--output", str(output)]
    script.main([*given, "--width", "64"])
    assert [row[4] for row in json.loads(output.read_bytes())["rows"]] == ["", "out of memory"]


def test_a_page_names_the_command_that_measured_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(script.ROOT)
    usual = "python -m scripts.benchmarks.cost_curves"
    assert script.command(script.parse(["--draw"])) == usual
    words = ["--families", "feature maps", "patterns", "--threads", "1", "2", "--output", "long.json"]
    command = script.command(script.parse(words))
    assert command == f"{usual} --families 'feature maps' patterns --threads 1 2 --output long.json"
    for file, shown in ((script.ROOT / "docs/long.json", "docs/long.json"), (tmp_path / "long.json", "long.json")):
        assert script.command(script.parse(["--output", str(file)])) == f"{usual} --output {shown}"


def test_a_page_says_how_many_keys_a_row_of_each_pattern_sees() -> None:
    sizes = script.argparse.Namespace(width=16, heads=8)
    names = ("multihead", "sparse", "local", "alternating", "lsh")
    text = script.keys_text([(name, length) for name in names for length in (128, 256)], sizes)
    assert "| pattern | options | keys, n = 128 | keys, n = 256 |" in text
    assert "| `local` | k = 10 | 21 | 21 |" in text
    assert "| `alternating` | k = 10 | 21 | 21 |" in text
    assert "| `lsh` | num_buckets = 8, num_rounds = 4 | by content | by content |" in text
    assert "multihead" not in text
    assert (
        script.keys_of_a_row("sparse", 4096, sizes) == "1,030"
    )  # each fourth, and the 6 others up to 4 positions away
    assert script.keys_of_a_row("local_p", 256, sizes) == "21"
    assert script.keys_text([("multihead", 64)], sizes) == ""


def rows_of(*figures: tuple[str, int, float]) -> list[script.Row]:
    return [script.Row(preset, False, 1, length, "", seconds, 1.0, 8) for preset, length, seconds in figures]


def test_a_time_that_grows_like_no_algorithm_is_marked() -> None:
    rows = rows_of(("local", 16, 1.0), ("local", 32, 4.0), ("local", 64, 4.1), ("local", 256, 250.0))
    assert script.irregular(rows) == {("local", 64), ("local", 256)}
    assert script.irregular(rows[:2]) == set()
    assert script.times(rows[2], {("local", 64)}) == "4,100 (0.24 ×) †"
    assert script.times(rows[1], {("local", 64)}) == "4,000 (0.25 ×)"


def test_presets_with_fewer_weights_than_the_reference_are_named() -> None:
    note = script.weights_note(["none", "local_m", "local", "synthesizer_random"], {"width": 512, "heads": 8})
    assert "`multihead` has 1,048,576 weights" in note
    assert note.endswith("these presets have fewer weights: 0 in `none`; 262,144 in `local_m`.")


@pytest.mark.slow  # it composes every preset many times; that a page drawn again is the same is tested above
@pytest.mark.parametrize("name", ["cost_curves_long", "cost_curves"])
def test_the_committed_page_is_that_of_its_figures(name: str, tmp_path: Path) -> None:
    page = script.ROOT / f"docs/benchmarks/{name}.md"
    shutil.copy(page.with_suffix(".json"), tmp_path)
    script.main(["--draw", "--output", str(tmp_path / f"{name}.json")])
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
