"""Attention maps of one validation sentence, as the runs of a group wrote them, drawn as SVG."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes

from seq2seq_attn.alignment.heat_map import COLOURS, MARGIN, NOTHING, WORD_MARK, label, readable, widest
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
UNKNOWN = re.compile("(?:<unk>|<0x[0-9A-F]{2}>)+")  # tokens of characters that a vocabulary lacks


class Map(NamedTuple):
    """The last layer of a kind, mean over its heads.

    Attributes:
        sentence: the source, as its tokens write it; None: no map of the run tells it.
    """

    layer: int
    heads: int
    weights: Float[np.ndarray, "rows columns"]
    rows: list[str]
    columns: list[str]
    sentence: str | None


def maps_of(rows: list[Row], kind: str, sentence: int) -> tuple[dict[str, Map], list[str]]:
    """Return the map of each row by label, of the first seed that has one, and the rows that have only other sentences.

    The numbers of sentences depend on a run's tokens. The first map is that of `sentence`, and the others are of the
    same text, whatever its number.
    """
    by_label: dict[str, Map] = {}
    others: list[str] = []
    text = None
    for row in rows:
        run_maps = (map_of(run, kind, sentence, text) for run in row.runs)
        first = next((one for one in run_maps if one is not None), None)
        if first is not None:
            by_label[row.label] = first
            text = text or first.sentence
        elif any(map_of(run, kind, sentence) is not None for run in row.runs):
            others.append(row.label)
    return by_label, others


def map_of(run: Run, kind: str, sentence: int, text: str | None = None) -> Map | None:
    """Return a map at the best validation of a run; None if there is none, or another program has written it.

    Args:
        text: of the sentence, which may have another number than `sentence`; None: any.
    """
    folder = best_maps(run)
    number = sentence if folder is None or text is None else number_of(folder, sentence, text)
    if folder is None or number is None:
        return None
    layers = {
        int(file.stem.split("_")[1]): file
        for file in folder.glob(f"{kind}_*_{number}.npz")
        if file.stem.count("_") == 2 and file.stem.split("_")[1].isdecimal()
    }
    if not layers:
        return None
    layer, file = max(layers.items())
    arrays = arrays_of(file, "weights", "source_tokens", "target_tokens")
    if arrays is None or arrays[0].ndim != 3 or arrays[0].dtype.kind != "f":
        return None
    weights, *sides = arrays
    columns, rows = ([str(token) for token in side] for side in sides)
    return Map(layer, len(weights), weights.mean(0), rows, columns, source_of(folder, number))


def arrays_of(file: Path, *names: str) -> list[np.ndarray] | None:
    """Return arrays of a map; None if a kill has cut it off, or another program has written it."""
    try:
        with np.load(regular(file)) as kept:
            if sum(record.file_size for record in kept.zip.infolist()) > MOST_BYTES:
                return None
            return [kept[name] for name in names]
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return None


def number_of(folder: Path, sentence: int, text: str) -> int | None:
    """Return the number of the sentence with this text, trying `sentence` first; None if no map is of it."""
    sources = {number: source_of(folder, number) for number in (sentence, *sorted(numbers_in(folder)))}
    known = (number for number, source in sources.items() if source is not None and may_match(source, text))
    return next(known, sentence if sources[sentence] is None else None)  # maps of the target alone do not tell


def source_of(folder: Path, number: int) -> str | None:
    """Return the text of a sentence by its tokens in a map that has them."""
    for file in sorted([*folder.glob(f"cross_*_{number}.npz"), *folder.glob(f"encoder_*_{number}.npz")]):
        if arrays := arrays_of(file, "source_tokens"):
            text = "".join(map(str, arrays[0].ravel()))
            return text.replace(WORD_MARK, " ").replace("</s>", "").replace("<s>", "").strip()
    return None


def may_match(text: str, other: str) -> bool:
    """Return whether two texts can be the same sentence; an unknown token matches any characters."""
    sides = [UNKNOWN.split(one) for one in (text, other)]
    if all(len(side) == 1 for side in sides):
        return text == other
    start, end = (min(len(side[place]) for side in sides) for place in (0, -1))
    return text[:start] == other[:start] and text[len(text) - end :] == other[len(other) - end :]


def mapped_sentences(run: Run) -> set[int]:
    """Return the numbers of the sentences that a run has maps of."""
    folder = best_maps(run)
    return set() if folder is None else numbers_in(folder)


def numbers_in(folder: Path) -> set[int]:
    parts = [file.stem.split("_") for file in folder.glob("*.npz")]
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
    scores: dict[int, float] = {}
    # A folder has the number of whole updates, which is one less where a validation comes within an update. The last
    # validations come first, as two may be one update apart.
    for updates, score in reversed(run.curve(figure)):
        known = next((one for one in (int(updates), int(updates) - 1) if one in folders and one not in scores), None)
        if known is not None and not math.isnan(score):
            scores[known] = sign * score
    return folders[max(sorted(scores), key=scores.__getitem__, default=max(folders))]


def draw_map(
    weights: Float[np.ndarray, "rows columns"], rows: Sequence[str], columns: Sequence[str], description: str
) -> str:
    """Draw a map of tokens; a weight of exactly 0, which a pattern, a mask or a normalizer sets, is grey."""
    rows, columns = ([readable(token) for token in side] for side in (rows, columns))
    left, top = MARGIN + widest(rows, FONT_SIZE), MARGIN + widest(columns, FONT_SIZE)
    wide, high = CELL * len(columns), CELL * len(rows)
    width, height = left + wide + 0.05, top + high + 0.05
    figure, axes = plot((width, height), (left / width, 0.05 / height, wide / width, high / height))
    show(axes, np.ma.masked_equal(weights, 0))
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
