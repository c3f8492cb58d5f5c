"""docs/presets.md: every attention in every architecture, as the script finds it."""

from __future__ import annotations

import pytest
from configs import options
from torch import nn

from scripts.benchmarks import write_preset_table as script

PAGE = script.PAGE.read_text(encoding="utf-8")
PARTS, IN_ARCHITECTURES = PAGE.split("\n## In every architecture\n")
HEAD, *ROWS = [line.strip("| ").split(" | ") for line in IN_ARCHITECTURES.splitlines() if line.startswith("| `")]


def test_every_pair_has_a_cell_and_at_least_seventy_run() -> None:
    assert HEAD[0] == "`attention=`"
    assert sorted(HEAD[1:]) == [f"`model={model}`" for model in options("model") if model != "lm"]  # a decoder
    assert [row[0] for row in ROWS] == [f"`{preset}`" for preset in options("attention")]
    assert {len(row) for row in ROWS} == {len(HEAD)}
    runs = sum(row.count(script.RUNS) for row in ROWS)
    assert runs >= 70
    assert f"{runs} of {len(ROWS) * (len(HEAD) - 1)} run" in PAGE


def test_every_preset_has_the_row_of_its_parts() -> None:
    rows = [script.HEAD, *map(script.parts_row, options("attention"))]
    assert {len(row) for row in rows} == {len(script.HEAD)}
    assert script.markdown(rows) in PARTS


@pytest.mark.parametrize("preset", ["hard", "fixed_patterns"])
def test_a_row_of_the_page_is_what_the_script_finds(preset: str) -> None:
    found = [script.cell(model, preset) for model in script.ARCHITECTURES]
    assert [f"`{preset}`", *found] in ROWS


@pytest.mark.slow
def test_the_page_is_what_the_script_writes() -> None:
    assert script.page() == PAGE


def test_a_refused_pair_is_told_by_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SMALL", (*script.SMALL, "model.decoder.dim=15"))
    assert script.cell("rnn", "luong_dot") == (
        "dot score needs query_dim == key_dim, got 15 and 16; use attention/score=general"
    )
    assert script.cell("rnn", "luong_general") == script.RUNS
    monkeypatch.setattr(script, "SMALL", (*script.SMALL, "attention.score.max_length=4"))
    assert script.cell("rnn", "luong_location").startswith("the model has positions for 4 tokens, and a sentence of")


def test_a_weight_that_learns_nothing_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    build = script.instantiated

    def with_a_dead_weight(node: object) -> object:
        model = build(node)
        if isinstance(model, nn.Module):
            model.dead = nn.Linear(2, 3)
        return model

    monkeypatch.setattr(script, "instantiated", with_a_dead_weight)
    with pytest.raises(AssertionError, match=r"^dead\.weight"):
        script.cell("rnn", "bahdanau")
