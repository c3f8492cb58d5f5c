"""Learning curves of runs in one picture: `seq2seq-attn draw curves RUN NAME=RUN ... --output curves.png`.

The points are written beside it to curves.tsv, which can be given like a run, so that later runs are added to earlier
ones.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import re
from pathlib import Path

from matplotlib.figure import Figure

from seq2seq_attn.alignment.fonts import FONTS
from seq2seq_attn.comparison.read import curve_of, read_log
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import check_beside, check_is_ours, replacing
from seq2seq_attn.text import printable

Curve = list[tuple[int | float, float]]  # the number of updates, and the figure
PICTURES = (".png", ".svg", ".pdf")
LINES = ("-", "--", "-.", ":")
MADE_BY = "seq2seq-attn draw curves"  # in a picture, by which it may be replaced


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, NAME=FOLDER, or an earlier curves.tsv")
    parser.add_argument("--figure", default="val/bleu", help="column of metrics.csv (%(default)s)")
    parser.add_argument("--lowest", type=float, help="start of the figure's axis; the least value if not given")
    parser.add_argument("--output", type=Path, required=True, help="the picture to write, .png, .svg or .pdf")
    options = parser.parse_args(arguments)
    if options.output.suffix not in PICTURES:
        raise UserError(f"{options.output} does not name a picture; end it in one of {', '.join(PICTURES)}")
    points = options.output.with_suffix(".tsv")
    check_is_ours(options.output, MADE_BY, f"a picture of {MADE_BY}")
    check_beside(points, re.compile(r"\Arun\tupdates\t"), options.output)
    curves = read(options.runs, options.figure)
    draw(curves, options.figure, options.lowest, options.output)
    write(curves, options.figure, points)
    print(f"wrote {options.output} and {points}")


def read(given: list[str], figure: str) -> dict[str, Curve]:
    """Return the curve of each run by its name; a run replaces earlier points of its name.

    Raises:
        UserError: if the figure was not logged, or two runs have one name.
    """
    points: dict[str, Curve] = {}
    runs: dict[str, Curve] = {}
    for text in given:
        name, position = ("", text) if Path(text).exists() or "=" not in text else text.split("=", 1)
        if position.endswith(".tsv"):
            if name:
                raise UserError(f"{text} names curves that have their names in {position}; give {position} alone")
            more = read_points(Path(position), figure)
            if both := sorted(points.keys() & more.keys()):
                raise UserError(
                    f"two files have the curve {both[0]}, the second in {position}; rename it in one of them"
                )
            points |= more
            continue
        if not Path(position).exists():
            raise UserError(f"{position} does not exist; give run folders of train.py, or NAME=RUN")
        log = read_log(Path(position) / "metrics.csv")
        curve = curve_of(log, figure)
        if not curve:
            known = sorted({key for row in log for key in row} - {"epoch", "step"})
            way_out = f"--figure is one of {', '.join(known)}" if known else "give run folders of train.py"
            raise UserError(f"{position} has logged no {figure}; {way_out}")
        name = printable(name or Path(position).resolve().name)
        if name in runs:
            raise UserError(f"two runs are named {name}; name {position} yourself: NAME={position}")
        runs[name] = curve
    return points | runs


def read_points(file: Path, figure: str) -> dict[str, Curve]:
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream, delimiter="\t")
        if header != ["run", "updates", figure]:
            raise ValueError(f"its header is not run, updates, {figure}")
        curves: dict[str, Curve] = {}
        for name, updates, value in rows:
            curves.setdefault(name, []).append((int(updates), float(value)))
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{file} does not hold curves ({reason}); give what this script wrote") from error
    return curves


def write(curves: dict[str, Curve], figure: str, file: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["run", "updates", figure])
    writer.writerows(
        [name, f"{updates:.0f}", f"{value:.7g}"] for name, curve in curves.items() for updates, value in curve
    )
    with replacing(file) as stream:
        stream.write(text.getvalue().encode())


def draw(curves: dict[str, Curve], figure: str, lowest: float | None, file: Path) -> None:
    picture = Figure(figsize=(6, 3.4), layout="constrained")
    axes = picture.add_subplot()
    lines = [
        axes.plot(*zip(*curve, strict=True), line, linewidth=1.4)[0]
        for curve, line in zip(curves.values(), itertools.cycle(LINES))
    ]
    axes.set(xlabel="updates", xlim=(0, None))
    axes.set_ylabel(figure, parse_math=False)
    axes.set_ylim(bottom=lowest)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    for text in axes.legend(lines, list(curves), frameon=False).get_texts():
        text.set_parse_math(False)
        text.set_fontfamily(FONTS.families(text.get_text()))
    metadata = {"Software" if file.suffix == ".png" else "Creator": MADE_BY}
    with replacing(file) as stream:
        picture.savefig(stream, format=file.suffix.removeprefix("."), dpi=150, metadata=metadata)
