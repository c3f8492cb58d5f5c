"""Attention weights as a heat map, source across and target down, as in Bahdanau et al. 2015, figure 3."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from seq2seq_attn.alignment.fonts import FONT, FONTS
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing

COLOURS = "magma_r"  # perceptually uniform, and darker is more in black and white too
NOTHING = "0.88"  # the grey of a place that has no weights
WORD_MARK = "▁"  # SentencePiece's mark of a word's begin, drawn as a dot, since the block would hide the letters
# inches, from which all positions are computed: Matplotlib's layout engines take a second a picture
GAP, MARGIN, TITLE, HEAD_NAME, BAR, BAR_LABELS, BAR_HEIGHT = 0.12, 0.15, 0.3, 0.22, 0.16, 0.62, 1.35
MOST_INCHES = 40.0  # of all maps of a figure, at 120 pixels each: those of long texts have smaller cells
LEGIBLE = 0.06  # inches of a cell; smaller ones have neither tokens nor lines between them


def draw_attention(
    weights: Float[np.ndarray, "*heads target source"],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
) -> Figure:
    """Return a figure outside pyplot; weights with a leading dimension give a small map of each head.

    Maps of hundreds of tokens have no room for the tokens beside them.
    """
    if weights.ndim not in (2, 3) or weights.shape[-2:] != (len(target_tokens), len(source_tokens)):
        raise ValueError(
            f"{len(target_tokens)} target and {len(source_tokens)} source tokens need weights of shape "
            f"(target, source) or (heads, target, source), got {weights.shape}"
        )
    source, target = ([readable(token) for token in source_tokens], [readable(token) for token in target_tokens])
    heads = weights.reshape(-1, len(target), len(source))
    columns = grid_columns(len(heads))
    rows = -(-len(heads) // columns)
    cell = float(np.clip(9 / max(len(source), len(target)), 0.13, 0.3 if len(heads) == 1 else 0.22))
    cell = min(cell, MOST_INCHES / max(columns * len(source), rows * len(target)))
    if cell < LEGIBLE:
        source, target = [], []
    font_size = min(11.0, 72 * cell * 0.75)
    left, top = MARGIN + widest(target, font_size), MARGIN + widest(source, font_size) + TITLE * bool(title)
    wide, high = cell * len(source_tokens), cell * len(target_tokens)
    across, down = wide + GAP, high + GAP + HEAD_NAME * (len(heads) > 1)
    width = max(left + columns * across + BAR + BAR_LABELS, widest([title or ""], 11.0) + MARGIN)
    height = top + max(rows * down, BAR_HEIGHT + GAP)

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)

    def position(x: float, y: float, wide: float, high: float) -> Axes:
        return figure.add_axes((x / width, 1 - (y + high) / height, wide / width, high / height))

    for number, head in enumerate(heads):
        row, column = divmod(number, columns)
        axes = position(left + column * across, top + row * down, wide, high)
        mesh = draw_map(axes, head, lines=cell >= LEGIBLE)
        label(axes, source if row == 0 else [], target if column == 0 else [], font_size)
        if len(heads) > 1:
            axes.set_xlabel(f"head {number}", fontsize=9, fontfamily=FONTS.families(), labelpad=3)
    bar_height = max(rows * down - down + high, BAR_HEIGHT)
    bar = figure.colorbar(mesh, cax=position(left + columns * across, top, BAR, bar_height), ticks=[0, 0.5, 1])
    bar.set_label("attention weight", fontsize=10, fontfamily=FONT)
    bar.ax.tick_params(labelsize=9, labelfontfamily=FONT)
    if title:
        y = 1 - 0.5 * TITLE / height
        figure.suptitle(title, y=y, va="center", fontsize=11, fontfamily=FONTS.families(), parse_math=False)
    return figure


def check_is_map(path_without_suffix: Path) -> None:
    """Refuse to replace PATH.png and PATH.npz where these are files that `save_attention_map` has not written.

    Raises:
        UserError: if there is one of them that is none.
    """
    picture, arrays = (path_without_suffix.parent / f"{path_without_suffix.name}{end}" for end in (".png", ".npz"))
    if not picture.exists() and not arrays.exists():
        return
    try:
        with np.load(arrays, allow_pickle=False) as kept:
            is_ours = set(kept.files) == {"weights", "source_tokens", "target_tokens"}
        is_ours = is_ours and (not picture.exists() or b"Matplotlib" in picture.read_bytes())
    except (OSError, ValueError, EOFError, BadZipFile):
        is_ours = False
    if not is_ours:
        there = picture if picture.exists() else arrays
        raise UserError(f"{there} already exists and is not an attention map; give another path for the pictures")


def save_attention_map(
    path_without_suffix: Path | str,
    weights: Float[np.ndarray, "*heads target source"],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
) -> Path:
    """Write PATH.npz without pickle, and PATH.png; return the path of the picture.

    The arrays, by which `check_is_map` knows a map, are first: an interrupt is likely to come during the drawing. The
    picture is whole or not there.
    """
    path = Path(path_without_suffix)
    if "=" in path.name:
        raise ValueError(
            f"the name of a picture must not hold '=', which on a command line is an override: {path.name!r}"
        )
    figure = draw_attention(weights, source_tokens, target_tokens, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = path.parent / f"{path.name}.png"  # not with_suffix: a name may hold dots
    np.savez_compressed(
        path.parent / f"{path.name}.npz",
        weights=weights,
        source_tokens=np.array(source_tokens, dtype=np.str_),
        target_tokens=np.array(target_tokens, dtype=np.str_),
    )
    with replacing(picture) as stream:
        figure.savefig(stream, format="png", dpi=120)
    return picture


def readable(token: str) -> str:
    """Return `·chat` for `▁chat`, with a box for each letter that no font has."""
    text, boxes = token.replace(WORD_MARK, "·") or "∅", without_glyph(token)
    return "".join("□" if letter in boxes else letter for letter in text)


def without_glyph(token: str) -> set[str]:
    """Return the letters of a token that are drawn as boxes."""
    letters = token.replace(WORD_MARK, "")
    return {letter for letter in letters if not (letter.isprintable() and FONTS.has_glyph(letter))}


def grid_columns(heads: int) -> int:
    """Return a power of two, as numbers of heads are: 1, 2, 4, 8, 16 heads fill 1, 2, 2, 4, 4 columns."""
    return 1 << ((heads - 1).bit_length() + 1) // 2


def widest(texts: list[str], font_size: float) -> float:
    """Return the inches of the longest text."""
    ruler = FONTS.ruler()
    ruler.set_size(font_size, 72)
    widths = []
    for text in texts:
        ruler.set_text(text)
        widths.append(ruler.get_width_height()[0] / 64 / 72)  # FreeType counts in 64ths of a point
    return max(widths, default=0.0)


def draw_map(axes: Axes, head: Float[np.ndarray, "target source"], *, lines: bool = True) -> QuadMesh:
    style: dict[str, Any] = {"edgecolors": "0.85", "linewidth": 0.3} if lines else {}
    mesh = axes.pcolormesh(head.astype(np.float32), cmap=COLOURS, vmin=0, vmax=1, **style)
    axes.invert_yaxis()
    return mesh


def label(axes: Axes, source: list[str], target: list[str], font_size: float) -> None:
    """Write tokens above and at the left; an empty list leaves its side without ticks."""
    axes.xaxis.tick_top()
    style: dict[str, Any] = {"fontsize": font_size, "fontfamily": FONTS.families(), "parse_math": False}
    axes.set_xticks(np.arange(len(source)) + 0.5, source, rotation=90, **style)
    axes.set_yticks(np.arange(len(target)) + 0.5, target, **style)
    axes.tick_params(length=2, pad=3)
