"""Build a W&B dashboard of a project's runs: `seq2seq-attn dashboard ENTITY/PROJECT --group SWEEP`.

It needs the extra [dashboard] and a W&B account. The layout is a saved view of the project over all runs that
`logger=wandb` logs, so it is built once and shows later runs too.
"""

from __future__ import annotations

import argparse
from typing import Any

from seq2seq_attn.errors import UserError, one_line, reports_user_errors
from seq2seq_attn.logger.wandb_logger import STEP, has_key

CURVES = {
    "Validation": ["val/bleu", "val/chrf", "val/loss", "val/ppl", "val/accuracy", "val/attention_entropy"],
    "Training": ["train/loss", "train/gradient_norm", "train/tokens_per_second", "train/padding_share"],
}
BEST = "val/bleu.max"  # as the summary names it
PINNED = ["config:choices.attention", "config:choices.model", "config:seed", f"summary:{BEST}"]


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("project", help="ENTITY/PROJECT, as in the project's address")
    parser.add_argument("--group", help="show the runs of one sweep: the name of its folder")
    parser.add_argument("--name", default="Attentions compared", help="of the view (default: %(default)s)")
    options = parser.parse_args(arguments)
    workspace = layout(*parts(options.project), name=options.name, group=options.group)
    if not has_key():
        raise UserError("W&B: no key is set (WANDB_API_KEY, or `wandb login`); a dashboard needs an account")
    try:
        saved = workspace.save()
    except Exception as error:  # of W&B, of its server or of the network
        raise UserError(f"W&B: {one_line(error)}; the dashboard is not saved") from error
    print(saved.url)


def parts(project: str) -> tuple[str, str]:
    entity, _, name = project.partition("/")
    if not entity or not name or "/" in name:
        raise UserError(f"{project} does not name a project; give ENTITY/PROJECT, such as my-team/seq2seq-attn")
    return entity, name


def layout(entity: str, project: str, *, name: str, group: str | None) -> Any:
    """Return the view: results, curves with the mean over an attention's seeds, maps and translations."""
    try:
        from wandb_workspaces import expr, workspaces
        from wandb_workspaces.reports import v2
    except ImportError as error:
        raise UserError("wandb-workspaces is not installed: pip install 'seq2seq_attn[dashboard]'") from error
    by_attention: dict[str, Any] = {"groupby": v2.Config("choices.attention"), "groupby_aggfunc": "mean"}
    sections = [
        workspaces.Section(
            name="Results",
            is_open=True,
            panels=[
                v2.BarPlot(title="Best validation BLEU", metrics=[BEST], **by_attention, groupby_rangefunc="stddev"),
                v2.ScatterPlot(title="BLEU against speed", x="train/tokens_per_second", y=BEST),
                v2.BarPlot(title="Attention entropy", metrics=["val/attention_entropy"], **by_attention),
                v2.RunComparer(diff_only="split"),
            ],
        )
    ]
    for title, names in CURVES.items():
        panels: list[Any] = [
            v2.LinePlot(title=y, x=STEP, y=[y], **by_attention, groupby_rangefunc="stddev") for y in names
        ]
        sections.append(workspaces.Section(name=title, panels=panels, is_open=True))
    seen: list[Any] = [
        v2.MediaBrowser(media_keys=["attention/cross_0_0"], mode="grid", grid_x_axis="step", grid_y_axis="run")
    ]
    seen.append(v2.WeavePanelSummaryTable(table_name="val/translations"))
    sections.append(workspaces.Section(name="Maps and translations", panels=seen, is_open=True))
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis=STEP, max_runs=30),
        runset_settings=workspaces.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == group) if group else "",
            order=[expr.Ordering(expr.Summary(BEST), ascending=False)],
            pinned_columns=list(PINNED),
        ),
    )
