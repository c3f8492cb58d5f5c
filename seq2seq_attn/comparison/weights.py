"""Draw the weights of presets alike, to compare: `seq2seq-attn draw weights RUN ... --sentence "A black cat."`.

A run gives OUTPUT/<preset>.png, a row of maps. All pictures have one size and one range of colours, from 0 to 1;
a weight of exactly 0, which a pattern, a mask or a normalizer has taken away, is grey.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hydra.utils import instantiate
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from seq2seq_attn.alignment.forced_attention import SlotMap, attention_along
from seq2seq_attn.alignment.heat_map import FONT, GAP, HEAD_NAME, MARGIN, draw_map, label, readable, widest
from seq2seq_attn.callback.attention_map import best_translation
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError, reports_user_errors

CELL, FONT_SIZE, DPI = 0.115, 6.0, 100  # inches, points: three maps of 25 tokens are as wide as a page
NOTHING = "0.88"  # grey
NUM_COLOURS = 256  # of a palette: a third of the bytes of true colour, and no difference to the eye
MAPS = ("encoder:0:0", "encoder:1:-1", "cross:-1:0")


class Wanted(NamedTuple):
    """One map of a model; layer and head count from 0, or from the last by -1."""

    kind: str
    layer: int
    head: int

    @classmethod
    def parse(cls, text: str) -> Wanted:
        try:
            kind, layer, head = text.split(":")
            return cls(kind, int(layer), int(head))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text} is not KIND:LAYER:HEAD, such as {MAPS[0]}") from error


class Map(NamedTuple):
    """Weights with the tokens of their rows and columns, readable, and what they are of."""

    name: str
    weights: Float[np.ndarray, "rows columns"]
    rows: list[str]
    columns: list[str]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run folders or .ckpt files, each of another preset")
    parser.add_argument("--sentence", required=True)
    parser.add_argument("--translation", help="whose weights are drawn; if not given, each run's own")
    parser.add_argument("--output", type=Path, default=Path("docs/images/attention"))
    parser.add_argument(
        "--maps",
        nargs="+",
        type=Wanted.parse,
        default=[Wanted.parse(text) for text in MAPS],
        metavar="KIND:LAYER:HEAD",
        help=f"encoder, self or cross; -1 is the last; {' '.join(MAPS)} if not given",
    )
    chosen = parser.parse_args(arguments)
    pictures: dict[str, list[Map]] = {}
    left_out = []
    for run in chosen.runs:
        try:
            preset, maps = read(run, chosen.sentence, chosen.translation, chosen.maps)
        except UserError as error:
            left_out.append(str(error))
            continue
        if preset in pictures:
            raise UserError(f"{run} is a second run of attention={preset}; give one run for each preset")
        pictures[preset] = maps
    if not pictures:
        raise UserError(f"there is nothing to draw ({'; '.join(left_out)}); give runs that have finished")
    for why in left_out:
        print(f"left out: {why}", file=sys.stderr)
    chosen.output.mkdir(parents=True, exist_ok=True)
    for preset, figure in zip(pictures, draw(list(pictures.values())), strict=True):
        path = chosen.output / f"{preset}.png"
        save(figure, path)
        print(path)


def read(run: str, sentence: str, translation: str | None, wanted: list[Wanted]) -> tuple[str, list[Map]]:
    """The preset of a run, and its maps of one sentence."""
    model, tokenizer, config = load(run)
    cleaning = instantiate(config["data"]["cleaning"], _convert_="all")
    (tokens,) = tokenizer.encode_source([cleaning.normalize_text(sentence)])
    if translation is None:
        target = best_translation(model, tokenizer, instantiate(config["search"], _convert_="all"), tokens)
    else:
        (target,) = tokenizer.encode_target([cleaning.normalize_text(translation)])
    found = attention_along(model, tokenizer, tokens, target)
    return config["choices"]["attention"], [pick(found, one, run) for one in wanted]


def pick(found: list[SlotMap], wanted: Wanted, run: str) -> Map:
    """One head of one slot.

    Raises:
        UserError: for a map that the model does not have, with those that it has.
    """
    layers = [entry for entry in found if entry[0].partition("/")[0] == wanted.kind]
    try:
        slot, weights, columns, rows = layers[wanted.layer]
        chosen = weights[wanted.head]
    except IndexError as error:
        slots = ", ".join(f"{slot} with {len(weights)} heads" for slot, weights, _, _ in found)
        raise UserError(
            f"{run} has no map {':'.join(map(str, wanted))}; it has {slots}: choose with --maps KIND:LAYER:HEAD"
        ) from error
    name = f"{slot}, head {wanted.head % len(weights)} of {len(weights)}"
    return Map(name, chosen, [readable(token) for token in rows], [readable(token) for token in columns])


def draw(pictures: list[list[Map]]) -> list[Figure]:
    """A figure for each row of maps; every map stands where its neighbours in the other figures stand."""
    everywhere = [one for maps in pictures for one in maps]
    top = MARGIN + max((widest(one.columns, FONT_SIZE) for one in everywhere), default=0.0)
    height = top + CELL * max((len(one.rows) for one in everywhere), default=0) + HEAD_NAME + MARGIN
    lefts, width = [], MARGIN
    for column in zip(*pictures, strict=True):
        width += max(widest(one.rows, FONT_SIZE) for one in column) + GAP
        lefts.append(width)
        width += CELL * max(len(one.columns) for one in column) + GAP
    return [draw_row(maps, lefts, top, width, height) for maps in pictures]


def draw_row(maps: list[Map], lefts: list[float], top: float, width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI)
    for (name, weights, rows, columns), left in zip(maps, lefts, strict=True):
        wide, high = CELL * len(columns), CELL * len(rows)
        axes = figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))
        axes.set_facecolor(NOTHING)
        draw_map(axes, np.ma.masked_equal(weights, 0))
        label(axes, columns, rows, FONT_SIZE)
        axes.set_xlabel(name, fontsize=FONT_SIZE + 1.5, fontfamily=FONT, labelpad=3)
    return figure


def save(figure: Figure, path: Path) -> None:
    """A small PNG."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    drawn.quantize(NUM_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
