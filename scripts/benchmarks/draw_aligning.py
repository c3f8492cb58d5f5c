"""Picture of word links with and without guided alignment: the weights of two runs along one given translation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seq2seq_attn.alignment.heat_map import FONT, MARGIN, TITLE, draw_map, label, widest
from seq2seq_attn.alignment.word_alignment import Link, WordWeights

CELL, SPACE, FONT_SIZE = 0.34, 0.3, 11.0  # inches, points
LINK = "#0a7d8c"  # which none of the colours of a map resembles


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
        figure.text(middle, line, one.title, ha="center", va="center", fontsize=FONT_SIZE, fontfamily=FONT)
    figure.savefig(file, dpi=120)


def outline(axes: Axes, links: Sequence[Link]) -> None:
    for link in links:
        axes.add_patch(Rectangle(link, 1, 1, fill=False, edgecolor=LINK, linewidth=2.2))
