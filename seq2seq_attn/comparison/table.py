"""The tables of a comparison for a paper: LaTeX, or CSV with all digits: `compare runs ... --table FILE`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seq2seq_attn.comparison.figures import Cell, Figures, about_test, cells_of, head_of
from seq2seq_attn.comparison.rows import Row
from seq2seq_attn.comparison.significance import Difference
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import check_writable, replacing
from seq2seq_attn.markdown import one_line

MADE_BY = "% Made by seq2seq-attn compare runs"
BEGINNINGS = {".tex": (MADE_BY,), ".csv": ("group,attention,seeds,", "group,folder,seeds,")}  # of what is written here
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"{{{character}}}" for character in "[*"},  # LaTeX would read them as arguments of the \\ before
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "≤": r"$\leq$", "−": "$-$", "–": "--",
}  # fmt: skip


def check_table(table: Path) -> None:
    """Refuse a file that is no table, that no comparison has written, or that cannot be written.

    Raises:
        UserError: for such a file.
    """
    if table.suffix not in BEGINNINGS:
        raise UserError(f"--table {table} ends in neither .tex nor .csv; give table.tex or table.csv")
    check_writable(table, "give another --table")
    beginnings = BEGINNINGS[table.suffix]
    if table.is_file() and not table.read_text(encoding="utf-8", errors="replace").startswith(beginnings):
        raise UserError(f"{table} already exists and is not a table of seq2seq-attn compare runs; give another --table")


def write_table(groups: Sequence[Figures], table: Path) -> None:
    """Write the figures of all groups in the format that the name ends in: a table each, or one of all rows."""
    text = latex_tables(groups) if table.suffix == ".tex" else csv_table(groups)
    with replacing(table) as stream:
        stream.write(text.encode())


def latex_tables(groups: Sequence[Figures]) -> str:
    """Return the tables of the page; the best of a column is bold."""
    lines = [rf"{MADE_BY}; it needs \usepackage{{booktabs}}"]
    for figures in groups:
        lines += ["", f"% {one_line(figures.title)}"]
        lines += [f"% {one_line(about_test(figures))}"] if figures.differences else []
        head = [latex(title) for title in head_of(figures)]
        rows = [[latex(row.label), *map(latex_cell, cells_of(figures, row))] for row in figures.rows]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
        lines += [latex_row(head), r"\midrule", *map(latex_row, rows), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def latex_row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{latex(cell.text)}}}" if cell.best else latex(cell.text)


def latex(text: str) -> str:
    """Return LaTeX that shows the text literally."""
    return "".join(LATEX.get(character, character) for character in one_line(text))


def csv_table(groups: Sequence[Figures]) -> str:
    """Return means and standard deviations by their names in results.json, in its units and with all digits.

    What is not known is empty: the deviation of a single seed, a figure that no run of the row has.
    """
    rows = [csv_row(figures, row) for figures in groups for row in figures.rows]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def csv_row(figures: Figures, row: Row) -> dict[str, Any]:
    """Return the values of a row by their columns; the baseline has no difference."""
    main, *others = [column_pair(figures, row, key) for key in figures.columns]
    difference = figures.differences.get(row.label)
    tested = dict.fromkeys(("difference", *Difference._fields[1:]))
    tested |= {} if difference is None else dict(zip(tested, difference, strict=True))
    cells = {"group": figures.title, figures.by: row.label, "seeds": len(row.runs)} | main | tested
    return cells | {name: value for pair in others for name, value in pair.items()}


def column_pair(figures: Figures, row: Row, key: str) -> dict[str, float | None]:
    """Return the mean and the deviation of a figure by their columns."""
    stats = figures.means[row.label].get(key)
    mean, deviation = (None, None) if stats is None else (stats.mean, stats.sd)
    return {key: mean, f"{key} deviation": deviation}
