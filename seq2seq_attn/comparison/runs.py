"""Compare runs by quality and cost: `seq2seq-attn compare runs FOLDERS... --output page.html`.

The folders are runs of train.py, or contain some, as a sweep or `runs/train` does. The command writes page.html, which
is self-contained, and page.md, its tables; with --table also a file of them for a paper: table.tex (LaTeX, with
booktabs) or table.csv (means and standard deviations with all digits). Runs of one configuration and several seeds make
one row, named by its attention; --by folder names it by the folder given: `runs/plain runs/ema --by folder --baseline
plain`. Each model, each test set and each set of options of the metric has its own table. Runs that did not finish are
named with the reason.

A difference from the baseline is tested by paired bootstrap over the sentences, of the mean over seeds, with Holm's
correction for the number of rows; without --baseline, with one for the choice of the best row.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from seq2seq_attn.checkpoint.admitted import Trust, add_trust_option
from seq2seq_attn.comparison.draw import STYLE
from seq2seq_attn.comparison.figures import Figures, figures_of, find_row
from seq2seq_attn.comparison.maps import mapped_sentences
from seq2seq_attn.comparison.page import LAST_LINE, check_page, html_page, markdown_page
from seq2seq_attn.comparison.read import LeftOut, read_runs
from seq2seq_attn.comparison.rows import Group, grouped
from seq2seq_attn.comparison.table import check_table, write_table
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import check_beside, replacing
from seq2seq_attn.metric.confidence import FEWEST_RESAMPLES


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders, or folders of them")
    parser.add_argument("--output", type=Path, default=Path("page.html"), help="the page; .md is written beside it")
    parser.add_argument("--by", choices=("attention", "folder"), default="attention", help="what names a row")
    parser.add_argument("--baseline", help="a row; the one with the highest score if not given")
    parser.add_argument("--resamples", type=int, default=1000, help="test sets drawn for p-values; 1,000 if not given")
    parser.add_argument("--sentence", type=int, default=0, help="number, from 0, of the sentence whose maps are shown")
    parser.add_argument("--table", type=Path, help="also write the tables to this file, .tex or .csv")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    if given.resamples < FEWEST_RESAMPLES:
        parser.error(f"--resamples {given.resamples} gives no interval of 95 %; give {FEWEST_RESAMPLES} or more")
    if given.output.suffix != ".html":
        parser.error(f"--output {given.output} does not end in .html; give page.html, and page.md is written beside it")
    check_beside(given.output.with_suffix(".md"), re.compile(f"^{re.escape(LAST_LINE)}", re.MULTILINE), given.output)
    check_page(given.output)
    if given.table is not None:
        check_table(given.table)
    groups, left_out = compare(given.folders, given.baseline, given.resamples, given.by, given.trust)
    check_sentence(groups, given.sentence)
    write(groups, left_out, given.output, given.sentence)
    if given.table is not None:
        write_table(groups, given.table)
        print(f"wrote {given.table}")


def compare(
    folders: Sequence[Path], baseline: str | None, resamples: int, by: str = "attention", trust: Trust = ()
) -> tuple[list[Figures], list[LeftOut]]:
    """Return the figures of every group, and the runs that have none."""
    runs, left_out = read_runs(folders, trust)
    groups, repeated = grouped(runs, by)
    check_baseline(groups, baseline)
    return [figures_of(group, baseline, resamples) for group in groups], [*left_out, *repeated]


def check_baseline(groups: Sequence[Group], baseline: str | None) -> None:
    if baseline is not None and not any(find_row(group.rows, baseline) for group in groups):
        names = sorted({row.label for group in groups for row in group.rows})
        raise UserError(f"no finished run has {groups[0].by}={baseline}; choose the baseline from: {', '.join(names)}")


def check_sentence(groups: Sequence[Figures], sentence: int) -> None:
    """Refuse a number other than the default of a sentence that no run has maps of."""
    known = {number for group in groups for row in group.rows for run in row.runs for number in mapped_sentences(run)}
    if not known and sentence != 0:
        raise UserError(f"--sentence {sentence} has no maps, because no run has any; leave --sentence out")
    if known and sentence not in known:
        numbers = ", ".join(map(str, sorted(known)))
        raise UserError(f"no run has maps of --sentence {sentence}; choose from: {numbers}")


def write(groups: Sequence[Figures], left_out: Sequence[LeftOut], page: Path, sentence: int) -> None:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # missing in Matplotlib's font, but not in the browser's
        html = html_page(groups, left_out, sentence)
    table = page.with_suffix(".md")
    for file, text in ((page, html), (table, markdown_page(groups, left_out, page.name))):
        with replacing(file) as stream:
            stream.write(text.encode())
    rows, runs = sum(len(group.rows) for group in groups), sum(len(r.runs) for g in groups for r in g.rows)
    print(f"wrote {page} and {table}: {rows} rows of {runs} runs, {len(left_out)} left out")
    for name, reason in left_out:
        print(f"left out: {name}: {reason}", file=sys.stderr)
