"""Draw attention weights of several presets to compare: `seq2seq-attn draw weights RUN ... --sentence "A black cat."`.

A run gives OUTPUT/<preset>.png, a row of maps. All pictures have one size and one range of colours, from 0 to 1;
a weight of exactly 0, which a pattern, a mask or a normalizer sets, is grey.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from seq2seq_attn.alignment.fonts import FONTS
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.heat_map import GAP, HEAD_NAME, MARGIN, NOTHING, draw_map, label, readable, widest
from seq2seq_attn.checkpoint.admitted import Trust, add_trust_option
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import check_is_ours
from seq2seq_attn.inference.translator import Translator

CELL, FONT_SIZE, DPI = 0.115, 6.0, 100  # inches, points: three maps of 25 tokens are as wide as a page
SOFTWARE = "seq2seq-attn draw weights"  # in a picture, by which it may be replaced
NUM_COLOURS = 256  # of a palette: a third of the bytes of true colour, and no visible difference
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
    """Weights of one head, its name, and the readable tokens of rows and columns."""

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
    parser.add_argument(
        "--output", type=Path, default=Path("attention_weights"), help="folder of the pictures (%(default)s)"
    )
    parser.add_argument(
        "--maps",
        nargs="+",
        type=Wanted.parse,
        default=[Wanted.parse(text) for text in MAPS],
        metavar="KIND:LAYER:HEAD",
        help=f"encoder, self or cross; -1 is the last; {' '.join(MAPS)} if not given",
    )
    add_trust_option(parser)
    chosen = parser.parse_args(arguments)
    if not chosen.sentence.strip():
        parser.error("--sentence is empty, so there is nothing to draw")
    pictures: dict[str, list[Map]] = {}
    left_out = []
    for run in chosen.runs:
        try:
            preset, maps = read(run, chosen.sentence, chosen.translation, chosen.maps, chosen.trust)
        except UserError as error:
            left_out.append(str(error))
            continue
        if preset in pictures:
            raise UserError(f"{run} is a second run of attention={preset}; give one run for each preset")
        check_is_ours(picture_path(chosen.output, preset), SOFTWARE, f"a picture of {SOFTWARE}")
        pictures[preset] = maps
    if not pictures:
        raise UserError(f"there is nothing to draw ({'; '.join(left_out)}); give other runs, or other --maps")
    for why in left_out:
        print(f"left out: {why}", file=sys.stderr)
    chosen.output.mkdir(parents=True, exist_ok=True)
    for preset, figure in zip(pictures, draw(list(pictures.values())), strict=True):
        path = picture_path(chosen.output, preset)
        save(figure, path)
        print(path)


def picture_path(folder: Path, preset: str) -> Path:
    return folder / f"{Path(preset).name}.png"  # a checkpoint of anyone names the preset


def read(
    run: str, sentence: str, translation: str | None, wanted: list[Wanted], trust: Trust = ()
) -> tuple[str, list[Map]]:
    """Return the preset of a run, and its maps of one sentence."""
    translator = Translator.load(run, device="cpu", trust=trust)
    given = translator.translate([sentence])[0] if translation is None else translation
    slot_maps = translator.attention(sentence, given)
    if not slot_maps and not translator.translate([sentence])[0].tokens:
        raise UserError(f"{run} reads no token in the sentence, so there is nothing to draw")
    preset = (translator.config.get("choices") or {}).get("attention") or Path(run).stem
    return preset, [pick(slot_maps, one, run) for one in wanted]


def pick(slot_maps: list[SlotMap], wanted: Wanted, run: str) -> Map:
    """Return one head of one slot.

    Raises:
        UserError: for a map that the model lacks, naming those that it has.
    """
    layers = [entry for entry in slot_maps if entry[0].partition("/")[0] == wanted.kind]
    try:
        slot, weights, columns, rows = layers[wanted.layer]
        chosen = weights[wanted.head]
    except IndexError as error:
        slots = ", ".join(f"{slot} with {len(weights)} heads" for slot, weights, _, _ in slot_maps)
        raise UserError(
            f"{run} has no map {':'.join(map(str, wanted))}; it has {slots}: choose with --maps KIND:LAYER:HEAD"
        ) from error
    name = f"{slot}, head {wanted.head % len(weights)} of {len(weights)}"
    return Map(name, chosen, [readable(token) for token in rows], [readable(token) for token in columns])


def draw(pictures: list[list[Map]]) -> list[Figure]:
    """Return a figure for each row of maps, with maps at the same positions in all."""
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
        axes.set_xlabel(name, fontsize=FONT_SIZE + 1.5, fontfamily=FONTS.families(), labelpad=3)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a small PNG, which names this command."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    info = PngInfo()
    info.add_text("Software", SOFTWARE)
    drawn.quantize(NUM_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=info)
