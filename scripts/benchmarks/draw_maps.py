"""Attention maps side by side in one picture, of each run on each sentence; docs/articles.md names the commands.

A model with several slots or heads is drawn by the first head of its last slot. A weight of exactly 0 is grey.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from seq2seq_attn.alignment.fonts import FONTS
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.heat_map import NOTHING, draw_map, label, readable
from seq2seq_attn.comparison.weights import save
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.inference.translator import Translator

CELL, MARGIN, FONT_SIZE, DPI = 0.32, 1.3, 10.0, 80  # inches, points


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run folders or .ckpt files")
    parser.add_argument("--sentences", nargs="+", required=True, metavar="SENTENCE")
    parser.add_argument("--translation", help="whose weights are drawn; if not given, each run's own")
    parser.add_argument("--output", type=Path, required=True, help="the picture, a .png file")
    options = parser.parse_args(arguments)
    maps = []
    for run in options.runs:
        translator = Translator.load(run, device="cpu")
        for sentence in options.sentences:
            given = options.translation or translator.translate([sentence])[0]
            title = translator.config["choices"]["attention"] if len(options.runs) > 1 else sentence
            maps.append((title, translator.attention(sentence, given)[-1]))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    save(draw(maps), options.output)
    print(options.output)


def draw(maps: Sequence[tuple[str, SlotMap]]) -> Figure:
    """Return a row of maps with their titles; cells have one size."""
    columns = [len(slot_map.columns) for _, slot_map in maps]
    rows = max(len(slot_map.rows) for _, slot_map in maps)
    figure = Figure(
        figsize=(sum(MARGIN + CELL * width for width in columns), MARGIN + CELL * rows), dpi=DPI, layout="constrained"
    )
    grid = figure.subplots(1, len(maps), squeeze=False, width_ratios=columns)[0]
    for axes, (title, slot_map) in zip(grid, maps, strict=True):
        axes.set_facecolor(NOTHING)
        draw_map(axes, np.ma.masked_equal(slot_map.weights[0], 0))
        axes.set_aspect("equal", anchor="N")
        tokens = [[readable(token) for token in side] for side in (slot_map.columns, slot_map.rows)]
        label(axes, *tokens, FONT_SIZE)
        axes.set_xlabel(title, fontsize=FONT_SIZE + 1, fontfamily=FONTS.families())
    return figure


if __name__ == "__main__":
    main()
