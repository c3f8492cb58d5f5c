"""Pictures of word links: the weights of two runs along one given translation, and error rates by attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seq2seq_attn.alignment.fonts import FONTS
from seq2seq_attn.alignment.heat_map import MARGIN, TITLE, draw_map, label, widest
from seq2seq_attn.alignment.word_alignment import Link, WordWeights

CELL, SPACE, FONT_SIZE = 0.34, 0.3, 11.0  # inches, points
LINK = "#0a7d8c"  # which none of the colours of a map resembles
MODELS = {"transformer": ("Transformer", "#2a6f97"), "rnn": ("RNN", "#c1582c"), "rnn_luong": ("Luong's RNN", "#6a994e")}


class Rates(NamedTuple):
    """The alignment error rates of an attention in percent, guided and not; None: not known."""

    name: str
    model: str
    guided: float
    unguided: float | None


class LinkMap(NamedTuple):
    """The weights of each target word, those of the end token last, and the links read from them."""

    title: str
    weights: WordWeights
    links: list[Link]


def draw_link_maps(file: Path, source: Sequence[str], target: Sequence[str], maps: Sequence[LinkMap]) -> None:
    """Write a picture of maps side by side, source across and target down, with their links outlined."""
    columns, rows = [*source, "</s>"], list(target)
    left, top = MARGIN + widest(rows, FONT_SIZE), MARGIN + widest(columns, FONT_SIZE) + TITLE
    wide, high = CELL * len(columns), CELL * len(rows)
    width, height = left + len(maps) * (wide + SPACE), top + high + MARGIN
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for number, one in enumerate(maps):
        x = left + number * (wide + SPACE)
        axes = figure.add_axes((x / width, MARGIN / height, wide / width, high / height))
        draw_map(axes, one.weights)
        label(axes, columns, rows if number == 0 else [], FONT_SIZE)
        outline(axes, one.links)
        middle, line = (x + wide / 2) / width, 1 - TITLE / 2 / height
        figure.text(middle, line, one.title, ha="center", va="center", fontsize=FONT_SIZE, fontfamily=FONTS.families())
    figure.savefig(file, dpi=120)


def outline(axes: Axes, links: Sequence[Link]) -> None:
    for link in links:
        axes.add_patch(Rectangle(link, 1, 1, fill=False, edgecolor=LINK, linewidth=2.2))


def draw_rates(file: Path, rates: Sequence[Rates]) -> None:
    """Write a picture with a line for each attention, the first at the top, coloured by the model that it is in."""
    figure = Figure(figsize=(7.5, 1.1 + 0.2 * len(rates)), layout="constrained")
    axes = figure.add_subplot()
    for name, (title, colour) in MODELS.items():
        guided = [(one.guided, row) for row, one in enumerate(rates) if one.model == name]
        plain = [(one.unguided, row) for row, one in enumerate(rates) if one.model == name and one.unguided is not None]
        for points, what, filling in ((guided, title, colour), (plain, f"{title}, not guided", "none")):
            if points:
                x, y = zip(*points, strict=True)
                axes.scatter(x, y, s=26, facecolors=filling, edgecolors=colour, label=what)
    axes.set_yticks(range(len(rates)), [one.name for one in rates], fontsize=8)
    axes.set_ylim(len(rates) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.set_xlabel("alignment error rate, % (lower is better)")
    axes.legend(fontsize=8, loc="lower left")
    figure.savefig(file, dpi=110)
