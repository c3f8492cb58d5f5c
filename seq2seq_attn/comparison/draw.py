"""Figures of the comparison as SVG for an HTML page, in black and grey, with names at their points."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from seq2seq_attn.alignment.fonts import FONT
from seq2seq_attn.alignment.heat_map import widest
from seq2seq_attn.comparison.figures import Column, Figures, efficient

STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "compare_runs", "font.family": FONT}
LINES = ("-", "--", ":", "-.")  # of seeds
GREY = "0.75"
POINTS = 72  # an inch
SCATTER = (7.2, 5.2)  # inches, as all sizes
HISTOGRAM = (5.4, 2.4)
PANEL = (2.1, 1.6)
PANEL_AXES = (0.19, 0.24, 0.78, 0.72)  # shares of the panel
FOREST_ROW, FOREST_AXIS, FOREST_FOOT = 0.19, 2.4, 0.45
LABEL, TICK = 7.5, 7.0  # points
BOLD = 1.12  # times as wide


Curve = Sequence[tuple[float, float]]  # a figure by updates


class Box(NamedTuple):
    """The rectangle of a name or a point, in inches."""

    left: float
    bottom: float
    right: float
    top: float

    def nearest(self, point: tuple[float, float]) -> tuple[float, float]:
        """Return the end of a line from the point to the box's middle."""
        return min(max(point[0], self.left), self.right), (self.bottom + self.top) / 2

    def overlap(self, other: Box) -> float:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(wide, 0.0) * max(high, 0.0)


def forest(figures: Figures) -> str:
    """Draw the differences from the baseline with their intervals, the best row on top."""
    rows = figures.rows
    left = max(text_width(row.label) for row in rows) + 0.2
    width, height = left + FOREST_AXIS + 0.15, FOREST_ROW * len(rows) + FOREST_FOOT
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, FOREST_FOOT / height, FOREST_AXIS / width, 1 - (FOREST_FOOT + 0.05) / height))
    for position, row in enumerate(rows):
        difference = figures.differences.get(row.label)
        if difference is None:
            axes.plot(0, position, "D", color="black", markersize=5)
            continue
        axes.plot([difference.low, difference.high], [position, position], color="black", linewidth=1.2)
        face = "black" if difference.significant else "white"
        axes.plot(difference.value, position, "o", color="black", markerfacecolor=face, markersize=5)
    axes.axvline(0, color="black", linewidth=0.7, linestyle="--")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows], parse_math=False)
    title = f"{figures.score} above {figures.baseline}"
    axes.set_xlabel(title, fontsize=LABEL + 1, loc="right", parse_math=False)  # a long name has room at the left
    axes.tick_params(labelsize=LABEL, length=2)
    axes.set_xlim(widened(*axes.get_xlim(), next(iter(figures.columns.values()))))
    number_ticks(axes.xaxis, bins=5)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    return svg(figure, f"{figures.title}: {figures.score} above {figures.baseline}, with 95 % intervals", enlarge=1.25)


def scatter(figures: Figures, key: str) -> str:
    """Draw the score against a cost; black points are on the Pareto front."""
    column, main = figures.columns[key], next(iter(figures.columns))
    rows = [row for row in figures.rows if math.isfinite(figures.mean(row, key) + figures.mean(row, main))]
    figure, axes = plot(SCATTER, (0.08, 0.1, 0.9, 0.88))
    front = efficient(figures, rows, key, lower=column.best == "low") if column.best else []
    for row in rows:
        x, y = figures.means[row.label][key], figures.means[row.label][main]
        axes.errorbar(
            x.mean / column.unit,
            y.mean,
            xerr=(x.sd or 0) / column.unit or None,
            yerr=y.sd or None,
            color="0.4",
            linewidth=0.8,
            marker="o",
            markersize=5.5,
            markeredgecolor="black",
            markerfacecolor="black" if row in front else "white",
        )
    axes.margins(0.08)
    if column.best:
        axes.set_xlim(above_zero(*widened(*axes.get_xlim(), column)))
    else:
        costs = [figures.mean(row, key) / column.unit for row in rows]
        high = max(1.08 * max(costs), least_span(column))
        axes.set_xlim(min(0.0, min(costs) - 0.03 * high), high)  # a point at 0 is whole
    axes.set_ylim(above_zero(*widened(*axes.get_ylim(), figures.columns[main])))
    number_ticks(axes.xaxis, bins=7, least=0.0)
    number_ticks(axes.yaxis, bins=7, least=0.0)
    axes.set_xlabel(column.title, fontsize=LABEL + 1)
    axes.set_ylabel(figures.score, fontsize=LABEL + 1, parse_math=False)
    axes.grid(color="0.92", linewidth=0.6)
    axes.tick_params(labelsize=LABEL, length=2)
    points = [(figures.mean(row, key) / column.unit, figures.mean(row, main), row.label, row in front) for row in rows]
    name_points(figure, axes, points)
    return svg(figure, f"{figures.title}: {figures.score} against {column.title}")


def least_span(column: Column) -> float:
    """Return the least span of an axis, in the unit shown; values that the table rounds alike stay close together."""
    return 4 * 10.0**-column.digits


def widened(low: float, high: float, column: Column) -> tuple[float, float]:
    more = max(0.0, least_span(column) - (high - low)) / 2
    return low - more, high + more


def above_zero(low: float, high: float) -> tuple[float, float]:
    """Return limits as wide, which are not below 0 except for half a point."""
    up = max(0.0, -low - 0.03 * (high - low))
    return low + up, high + up


def number_ticks(axis: Axis, bins: int, least: float = -math.inf) -> None:
    """Set a few ticks, with as many digits as tell them apart."""
    low, high = axis.get_view_interval()
    ticks: Any = MaxNLocator(bins, steps=[1, 2, 5, 10]).tick_values(low, high)
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    ticks = ticks[(ticks >= max(low, least - 1e-9)) & (ticks <= high)]
    axis.set_ticks(ticks, [f"{round(tick, digits) + 0.0:,.{digits}f}".replace("-", "−") for tick in ticks])


def name_points(figure: Figure, axes: Axes, points: Sequence[tuple[float, float, str, bool]]) -> None:
    """Write each name near its point where it covers least; a thin line leads to a distant one."""
    axes.get_xlim(), axes.get_ylim()  # makes Matplotlib choose them now
    extents: Any = axes.get_window_extent().extents
    frame = Box(*(extents / figure.dpi))
    centres = [tuple(axes.transData.transform((x, y)) / figure.dpi) for x, y, _, _ in points]
    sizes = [(text_width(name) * (BOLD if bold else 1), LABEL / POINTS) for _, _, name, bold in points]
    names = zip(centres, points, arrange(centres, sizes, frame), strict=True)
    for (x, y), (_, _, name, bold), (side, box) in names:
        end, middle = box.nearest((x, y))
        if math.dist((x, y), (end, middle)) > 0.2:
            ends = [x / SCATTER[0], end / SCATTER[0]], [y / SCATTER[1], middle / SCATTER[1]]
            figure.add_artist(Line2D(*ends, color="0.6", linewidth=0.5, zorder=-1))
        # Anchored at the end that faces the point, as a browser may have a wider font.
        anchor = {"left": box.left, "right": box.right, "center": (box.left + box.right) / 2}[side]
        figure.text(
            anchor / SCATTER[0],
            middle / SCATTER[1],
            name,
            fontsize=LABEL,
            ha=side,
            va="center",
            parse_math=False,
            fontweight="bold" if bold else "normal",
        )


def text_width(text: str) -> float:
    """Return inches in the size of labels, measured at ten times that size, where hinting rounds less."""
    return widest([text], 10 * LABEL) / 10


def arrange(
    centres: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], frame: Box
) -> list[tuple[str, Box]]:
    """Return for each name the side of its text that faces the point, and its box; all in inches."""
    taken = [Box(x - 0.05, y - 0.05, x + 0.05, y + 0.05) for x, y in centres]
    placements = []
    for (x, y), (wide, high) in zip(centres, sizes, strict=True):
        options = [(side, beside(x, y, wide, high, side, *step)) for side, *step in steps()]
        best = min(options, key=lambda option: cost(option[1], taken, frame, (x, y)))
        taken.append(best[1])
        placements.append(best)
    return placements


def steps() -> list[tuple[str, float, float]]:
    """Return the side of the text that faces the point, the distance beside and above it; near ones first."""
    heights = sorted((0.12 * step for step in range(-9, 10)), key=abs)
    centred = [("center", 0.0, shift) for shift in (0.13, -0.13)]
    around = [(side, away, up) for away in (0.08, 0.25) for up in heights for side in ("left", "right")]
    return [*around[:2], *centred, *around[2:]]


def beside(x: float, y: float, wide: float, high: float, side: str, away: float, up: float) -> Box:
    left = {"left": x + away, "right": x - away - wide, "center": x - wide / 2}[side]
    return Box(left, y + up - high / 2, left + wide, y + up + high / 2)


def cost(box: Box, taken: Sequence[Box], frame: Box, point: tuple[float, float]) -> float:
    """Return the square inches covered, weighted up outside of the axes, plus a little for the distance."""
    outside = (box.right - box.left) * (box.top - box.bottom) - box.overlap(frame)
    return 10 * outside + sum(map(box.overlap, taken)) + 0.004 * math.dist(point, box.nearest(point))


def panels(curves: Mapping[str, Sequence[Curve]], title: str, name: str) -> dict[str, str]:
    """Return by label a small plot of its curves, one of each seed, in black over all others in grey.

    Grey curves and axes are drawn once, in the first panel; the others refer to them by `name`.
    """
    everything = [curve for seed_curves in curves.values() for curve in seed_curves if curve]
    if max(map(len, everything), default=0) < 2:
        return {}
    right = max(x for curve in everything for x, _ in curve) * 1.05
    high = 1.05 * max((y for curve in everything for _, y in curve if math.isfinite(y)), default=0) or 1.0
    back, axes = plot(PANEL, PANEL_AXES)
    axes.add_collection(LineCollection(everything, colors=GREY, linewidths=0.6))
    axes.set(xlim=(0, right), ylim=(0, high))
    axes.set_xlabel("updates", fontsize=TICK, labelpad=1)
    axes.set_ylabel(title, fontsize=TICK, labelpad=1, parse_math=False)
    axes.tick_params(labelsize=TICK - 0.5, length=2, pad=1.5)
    axes.locator_params(nbins=4)
    shared = svg(back, name)
    plots = {}
    for number, (label, seed_curves) in enumerate(curves.items()):
        figure, axes = plot(PANEL, PANEL_AXES)
        axes.axis("off")
        axes.set(xlim=(0, right), ylim=(0, high))
        for curve, line in zip(seed_curves, itertools.cycle(LINES)):
            if curve:
                axes.plot(*zip(*curve, strict=True), line, color="black", linewidth=1.4)
                axes.plot(*curve[-1], "o", color="black", markersize=3)
        front = svg(figure, f"{title} of {label} ({name})")
        ground = f'<g id="{name}">{inside(shared)}</g>' if number == 0 else f'<use href="#{name}"/>'
        opening, _, rest = front.partition(">")
        plots[label] = f"{opening}>{ground}{rest}"
    return plots


def histogram(values: Sequence[float], title: str, counted: str, description: str) -> str:
    """Draw how many values are in each tenth of the widest one's size: above 0 in black, below in grey, 0 not at all.

    Args:
        title: of the values, short enough for an axis.
        counted: what they are of.
        description: of the plot, for screen readers.
    """
    step = max(2.0, math.ceil(max(map(abs, values)) / 10))
    edges = [step * number for number in range(-10, 11)]
    figure, axes = plot(HISTOGRAM, (0.1, 0.2, 0.88, 0.76))
    counts = np.histogram([value for value in values if value], edges)[0]
    colors = ["0.7" if edge < 0 else "black" for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, step, align="edge", color=colors, edgecolor="white", linewidth=0.5)
    axes.set_xlabel(title, fontsize=LABEL + 1, parse_math=False)
    axes.set_ylabel(counted, fontsize=LABEL + 1, parse_math=False)
    axes.tick_params(labelsize=LABEL, length=2)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return svg(figure, description)


def plot(size: tuple[float, float], rectangle: tuple[float, float, float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)
    FigureCanvasSVG(figure)
    axes = figure.add_axes(rectangle)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def svg(figure: Figure, description: str, enlarge: float = 1.0) -> str:
    """Return the figure as an element of an HTML page, whose ids are unique to description and content.

    Args:
        enlarge: how many times wider than drawn it may be.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(?<= d=")[^"]*', lambda path: rounded(path[0]), text)
    prefix = f"f{hashlib.sha256((description + text).encode()).hexdigest()[:8]}-"
    text = re.sub(r' (id="|xlink:href="#|clip-path="url\(#)', rf" \g<1>{prefix}", text)
    width, height = (figure.get_size_inches() * POINTS).tolist()
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{enlarge * width * 96 / POINTS:.0f}px" role="img" '
        f'aria-label="{escape(description)}">'
    )
    return head + re.sub(r"\s*\n\s*", "\n", text[text.index(">") + 1 :]).strip()


def rounded(path: str) -> str:
    """Round to two decimals of a point, which no eye tells apart."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", path)


def inside(text: str) -> str:
    return text[text.index(">") + 1 : text.rindex("</svg>")]
