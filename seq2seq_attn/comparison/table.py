"""The table of a group: what a cell shows and is sorted by; and all groups as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from seq2seq_attn.comparison.figures import Column, Figures, verdict
from seq2seq_attn.comparison.read import LeftOut
from seq2seq_attn.comparison.rows import Row
from seq2seq_attn.comparison.translations import FLOOR
from seq2seq_attn.markdown import literal


class Cell(NamedTuple):
    """What a table shows, what it is sorted by, and whether it is the best of its column."""

    text: str
    value: float
    best: bool = False


def markdown_page(groups: Sequence[Figures], left_out: Sequence[LeftOut], page: str) -> str:
    """The table of each group with what must be read with it; `page` is the HTML file's name."""
    lines = [f"# {title_of(groups)}", ""]
    for figures in groups:
        lines += [f"## {literal(figures.title)}", "", *(f"- {literal(line)}" for line in verdict(figures)), ""]
        head = [literal(title) for title in head_of(figures)]
        lines += [f"| {' | '.join(head)} |", f"|:--|{'--:|' * (len(head) - 1)}"]
        for row in figures.rows:
            texts = ((literal(cell.text), cell.best) for cell in cells_of(figures, row))
            cells = [literal(row.label), *(f"**{text}**" if best else text for text, best in texts)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *([literal(about_test(figures)), ""] if figures.differences else [])]
        lines += [*(f"- {literal(note)}" for note in figures.notes), ""]
    if left_out:
        lines += ["## Left out", "", *(f"- {literal(f'{name}: {reason}')}" for name, reason in left_out), ""]
    link = f"[{literal(page)}]({quote(page)})"
    lines.append(f"± is the standard deviation over seeds. With plots, curves and maps: {link}.")
    return "\n".join(lines) + "\n"


def title_of(groups: Sequence[Figures]) -> str:
    return "Attentions compared" if all(group.by == "attention" for group in groups) else "Runs compared"


def about_test(figures: Figures) -> str:
    own = "" if figures.chosen else ", which has the highest BLEU; --baseline chooses another"
    return (
        f"BLEU above {figures.baseline}{own}. 95 % and p: of {figures.resamples:,} test sets drawn with replacement, "
        "the same for all (paired bootstrap, Koehn 2004). Filled, or *: p < 0.05 after Holm's correction for "
        f"{counted(len(figures.differences), 'comparison')}. {FLOOR} This tells chance of the sentences, not of the "
        "seeds."
    )


def head_of(figures: Figures) -> list[str]:
    tested = [f"BLEU above {figures.baseline}", "95 %", "p"] if figures.differences else []
    bleu, *others = (column.title for column in figures.columns.values())
    return [figures.by, "seeds", bleu, *tested, *others]


def cells_of(figures: Figures, row: Row) -> list[Cell]:
    """Of one row, behind its name."""
    bleu, *others = (mean_cell(figures, row, key, column) for key, column in figures.columns.items())
    tested = difference_cells(figures, row) if figures.differences else []
    return [Cell(str(len(row.runs)), len(row.runs)), bleu, *tested, *others]


def difference_cells(figures: Figures, row: Row) -> list[Cell]:
    found = figures.differences.get(row.label)
    if found is None:
        return [Cell("baseline", 0.0), Cell("", math.nan), Cell("", math.nan)]
    p = Cell("same", 1.0) if found.p is None else Cell(f"{found.p:.3f}{'*' * found.significant}", found.p)
    return [Cell(signed(found.value), found.value), Cell(f"{signed(found.low)} to {signed(found.high)}", found.low), p]


def mean_cell(figures: Figures, row: Row, key: str, column: Column) -> Cell:
    found = figures.means[row.label].get(key)
    if found is None:
        return Cell("–", math.nan)
    text = f"{found.mean / column.unit:,.{column.digits}f}"
    if found.sd:  # seeds change no count
        text += f" ± {found.sd / column.unit:,.{column.digits}f}"
    if key == "peak_memory_bytes" and any(run.memory_is_bound for run in row.runs):
        text = f"≤ {text}"
    return Cell(text, found.mean / column.unit, shown(found.mean, column) == best_of(figures, key, column))


def best_of(figures: Figures, key: str, column: Column) -> float | None:
    """None where a column has no best, or it is not known."""
    runs = [run for row in figures.rows for run in row.runs]
    if key == "peak_memory_bytes" and any(run.memory_is_bound for run in runs):
        return None
    values = [figures.mean(row, key) for row in figures.rows]
    known = [shown(value, column) for value in values if math.isfinite(value)]
    if column.best is None or len(set(known)) < 2:
        return None
    return max(known) if column.best == "high" else min(known)


def shown(value: float, column: Column) -> float:
    """As far as the table tells values apart."""
    return round(value / column.unit, column.digits)


def signed(value: float) -> str:
    """`+1.2`, `−0.3`, and 0.0 without a sign."""
    text = f"{value:+.1f}".replace("-", "−")
    return text[1:] if text[1:] == "0.0" else text


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
