"""The dashboard's layout shows what runs log, and goes to W&B in one call, which is as far as a test goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from configs import composed

from seq2seq_attn.comparison import dashboard as dashboard

workspaces = pytest.importorskip("wandb_workspaces.workspaces")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Views that would have gone to W&B."""
    views: list[dict[str, Any]] = []

    def upsert(view: Any) -> dict[str, Any]:
        views.append(json.loads(view.model_dump_json(by_alias=True, exclude_none=True)))
        return {"upsertView": {"view": {"name": "nw-any", "id": "any"}}}

    monkeypatch.setattr(workspaces.interface.internal, "upsert_view2", upsert)
    monkeypatch.setattr(workspaces.Workspace, "url", property(lambda self: f"https://any/{self.entity}"))
    monkeypatch.setattr(dashboard, "has_key", lambda: True)
    return views


def test_one_view_of_the_project_is_sent_with_a_curve_for_each_figure(
    sent: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard.main(["my-team/seq2seq-attn", "--group", "of_seeds", "--name", "Seeds"])
    (view,) = sent
    assert (view["entity"], view["project"], view["displayName"]) == ("my-team", "seq2seq-attn", "Seeds")
    sections = {
        section["name"]: section["panels"] for section in view["spec"]["section"]["panelBankConfig"]["sections"]
    }
    assert list(sections) == ["Results", "Validation", "Training", "Maps and translations"]
    for title, names in dashboard.CURVES.items():
        curves = [panel["config"] for panel in sections[title]]
        assert [curve["metrics"] for curve in curves] == [[name] for name in names]
        assert {curve["xAxis"] for curve in curves} == {"trainer/global_step"}
        assert {(curve["groupBy"], curve["groupAgg"]) for curve in curves} == {("choices.value.attention", "mean")}
    assert "of_seeds" in json.dumps(view["spec"]["section"]["runSets"])
    assert "https://any/my-team" in capsys.readouterr().out


def test_without_a_group_no_run_is_left_out(sent: list[dict[str, Any]]) -> None:
    dashboard.main(["my-team/seq2seq-attn"])
    assert "of_seeds" not in json.dumps(sent)
    (runs,) = sent[0]["spec"]["section"]["runSets"]
    assert runs["filters"]["filters"] == []


def test_columns_are_choices_that_a_configuration_has() -> None:
    config = composed()
    for column in dashboard.PINNED:
        kind, _, name = column.partition(":")
        assert kind == "summary" or name.split(".")[0] in config


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["seq2seq-attn"], "seq2seq-attn does not name a project; give ENTITY/PROJECT, such as my-team/seq2seq-attn"),
        (["a/b/c"], "a/b/c does not name a project"),
    ],
)
def test_a_project_without_its_entity_is_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        dashboard.main(arguments)
    assert sentence in capsys.readouterr().err


def test_without_an_account_nothing_is_sent(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboard, "has_key", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        dashboard.main(["my-team/seq2seq-attn"])
    assert (
        "W&B: no key is set (WANDB_API_KEY, or `wandb login`); a dashboard needs an account" in capsys.readouterr().err
    )
    assert sent == []
