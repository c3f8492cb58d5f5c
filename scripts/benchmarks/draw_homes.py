"""Curves and attention maps of the runs of `homes.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from scripts.benchmarks.home_runs import BEST, HOMES, SEEDS
from scripts.benchmarks.home_tables import Row, Table
from seq2seq_attn.alignment.heat_map import NOTHING, draw_map, label, readable

NAMED, ACROSS = 12, 4  # attentions of a home whose maps are drawn, and those in a row


def plot(tables: Sequence[Table], file: Path) -> None:
    """Draw the curves of the first seed: the usual attention, none, the best others by name, and the rest."""
    tables = [table for table in tables if table.rows]
    rows = -(-len(tables) // 2)
    figure = Figure(figsize=(11, 3.6 * rows), layout="constrained")
    for position, table in enumerate(tables, 1):
        axes = figure.add_subplot(rows, min(2, len(tables)), position)
        for row, style in reversed(list(styled(table))):
            points = row.seeds[0]["curve"] if row.seeds[0]["seed"] == SEEDS[0] else []
            axes.plot(*zip(*points, strict=True), **style) if points else None
        axes.set_title(HOMES[table.name].title, fontsize=9)
        axes.set_xlabel("updates", fontsize=8)
        axes.set_ylabel("validation BLEU", fontsize=8)
        axes.tick_params(labelsize=7)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(file, dpi=110)


def draw_maps(table: Table, measures: Sequence[dict[str, Any]], file: Path) -> bool:
    """Draw the maps of the home's first seeds, the usual attention first; return whether there are any."""
    maps = {row["preset"]: row["map"] for row in measures if row["home"] == table.name and row.get("map") is not None}
    home = HOMES[table.name]
    every = [row.preset for row in table.rows]
    order = [home.usual, *every[:BEST], *home.own, *home.first, *every]
    names = [name for name in dict.fromkeys(order) if name in maps][:NAMED]
    if not names:
        return False
    across = min(ACROSS, len(names))
    down = -(-len(names) // across)
    figure = Figure(figsize=(2.6 * across + 0.6, 2.6 * down), layout="constrained")
    for position, (axes, name) in enumerate(
        zip(figure.subplots(down, across, squeeze=False).flat, names, strict=False)
    ):
        axes.set_facecolor(NOTHING)
        weights = np.array(maps[name]["weights"])
        draw_map(axes, np.ma.masked_equal(weights, 0))
        columns, rows = ([readable(token) for token in maps[name][side]] for side in ("columns", "rows"))
        label(axes, columns, rows if position % across == 0 else [], 6.5)
        axes.set_xlabel(name, fontsize=9)
    for axes in figure.axes[len(names) :]:
        axes.axis("off")
    figure.savefig(file, dpi=110)
    return True


def styled(table: Table) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each row with the style of its curve, the named ones first."""
    named = {HOMES[table.name].usual: {"color": "black"}, "none": {"color": "black", "linestyle": "--"}}
    others = [row for row in table.rows if row.preset not in named]
    for row in table.rows:
        if row.preset in named:
            yield row, {"label": row.preset, "linewidth": 1.4, **named[row.preset]}
    for number, row in enumerate(others):
        best = {"label": row.preset, "color": f"C{number}", "linewidth": 1.2}
        yield row, best if number < BEST else {"color": "0.85", "linewidth": 0.8}
