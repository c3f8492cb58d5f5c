"""Attention maps of one validation sentence, as the runs of a group wrote them, drawn as SVG."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes

from seq2seq_attn.alignment.heat_map import COLOURS, MARGIN, NOTHING, label, readable, widest
from seq2seq_attn.comparison.draw import plot, svg
from seq2seq_attn.comparison.read import Run, chosen_by
from seq2seq_attn.comparison.rows import Row
from seq2seq_attn.files import regular

KINDS = {
    "cross": "What each token of the translation attends to in the source",
    "encoder": "What each token of the source attends to in the source",
    "self": "What each token of the translation attends to in itself",
}
CELL, FONT_SIZE = 0.155, 7.5  # inches, points
SCALE = (1.6, 0.42)  # inches of the key
MOST_BYTES = 1 << 28  # of the weights of a map, unpacked


class Map(NamedTuple):
    """The last layer of a kind, mean over its heads."""

    layer: int
    heads: int
    weights: Float[np.ndarray, "rows columns"]
    rows: list[str]
    columns: list[str]


def maps_of(rows: list[Row], kind: str, sentence: int) -> dict[str, Map]:
    """Return the map of each row by label: of the first seed that has one, at its best validation."""
    by_label = {}
    for row in rows:
        run_maps = (map_of(run, kind, sentence) for run in row.runs)
        first = next((one for one in run_maps if one is not None), None)
        if first is not None:
            by_label[row.label] = first
    return by_label


def map_of(run: Run, kind: str, sentence: int) -> Map | None:
    folder = best_maps(run)
    if folder is None:
        return None
    layers = {
        int(file.stem.split("_")[1]): file
        for file in folder.glob(f"{kind}_*_{sentence}.npz")
        if file.stem.count("_") == 2 and file.stem.split("_")[1].isdecimal()
    }
    if not layers:
        return None
    layer, file = max(layers.items())
    try:
        with np.load(regular(file)) as kept:
            if sum(record.file_size for record in kept.zip.infolist()) > MOST_BYTES:
                return None
            weights, source, target = (kept[name] for name in ("weights", "source_tokens", "target_tokens"))
        if weights.ndim != 3 or weights.dtype.kind != "f":
            return None
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return None  # a kill has cut it off, or another program has written it
    return Map(layer, len(weights), weights.mean(0), *([str(token) for token in side] for side in (target, source)))


def mapped_sentences(run: Run) -> set[int]:
    """Return the numbers of the sentences that a run has maps of."""
    folder = best_maps(run)
    parts = [] if folder is None else [file.stem.split("_") for file in folder.glob("*.npz")]
    return {int(name[2]) for name in parts if len(name) == 3 and name[0] in KINDS and name[2].isdecimal()}


def best_maps(run: Run) -> Path | None:
    """Return the folder of the validation that chose the checkpoint, else the last."""
    folders = {
        int(number): position
        for position in run.folder.glob("attention_maps/step_*")
        if (number := position.name.removeprefix("step_")).isdecimal() and position.is_dir()
    }
    if not folders:
        return None
    figure, mode = chosen_by(run.config)
    sign = -1 if mode == "min" else 1
    scores = {int(step): sign * score for step, score in run.curve(figure)}
    known = [step for step in scores if step in folders]
    return folders[max(known, key=scores.__getitem__, default=max(folders))]


def draw_map(attention_map: Map, description: str) -> str:
    """Draw a map; a weight of exactly 0, which a pattern, a mask or a normalizer sets, is grey."""
    rows, columns = ([readable(token) for token in side] for side in (attention_map.rows, attention_map.columns))
    left, top = MARGIN + widest(rows, FONT_SIZE), MARGIN + widest(columns, FONT_SIZE)
    wide, high = CELL * len(columns), CELL * len(rows)
    width, height = left + wide + 0.05, top + high + 0.05
    figure, axes = plot((width, height), (left / width, 0.05 / height, wide / width, high / height))
    show(axes, np.ma.masked_equal(attention_map.weights, 0))
    label(axes, columns, rows, FONT_SIZE)
    axes.tick_params(length=0)
    return svg(figure, description)


def draw_scale(description: str) -> str:
    """Draw the key to the colours of maps."""
    figure, axes = plot(SCALE, (0.06, 0.45, 0.88, 0.5))
    show(axes, np.linspace(0, 1, 64)[None])
    axes.set_xticks([0, 32, 64], ["0", "weight", "1"], fontsize=FONT_SIZE)
    axes.set_yticks([])
    axes.tick_params(length=0)
    return svg(figure, f"{description}: light is weight 0, dark is weight 1")


def show(axes: Axes, weights: Float[np.ndarray, "rows columns"]) -> None:
    """Draw one pixel for each weight, which the browser enlarges; an element for each would make the page heavy."""
    axes.imshow(
        weights,
        cmap=colormaps[COLOURS].with_extremes(bad=NOTHING),
        vmin=0,
        vmax=1,
        interpolation="none",
        aspect="auto",
        extent=(0, weights.shape[1], weights.shape[0], 0),
        origin="upper",
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
