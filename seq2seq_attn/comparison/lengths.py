"""Scores of runs on the short, middle and long third of a test set: `seq2seq-attn compare lengths RUN RUN ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.comparison.read import Run, read_runs
from seq2seq_attn.comparison.significance import Counted, count_sentences
from seq2seq_attn.comparison.translations import read_system
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.text import num_words, plain_console


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of them")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    runs, left_out = read_runs(given.runs, given.trust)
    table = Table("attention", "metric")
    for column in ("test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(run.results["attention"], run.metric, *scores(run))
    plain_console().print(table)
    for name, reason in left_out:
        print(f"left out: {name}: {reason}", file=sys.stderr)


def scores(run: Run) -> Iterator[str]:
    """Yield the score of a run's test set, of its thirds, and of the unseen combinations if there are some."""
    metric, counts = test = count_sentences(run)
    yield f"{test.score():.1f}"
    for third in thirds(run.system.sources):
        yield f"{Counted(metric, counts[third]).score():.1f}" if third else ""
    if (run.folder / "translations_unseen.tsv").exists():
        unseen = run._replace(system=read_system(run.folder, "unseen"))
        yield f"{count_sentences(unseen).score():.1f}"


def thirds(sources: list[str]) -> list[list[int]]:
    """Return the rows sorted by words of the source, cut into three."""
    rows = sorted(range(len(sources)), key=lambda row: num_words(sources[row]))
    return [rows[start:end] for start, end in pairwise(len(rows) * i // 3 for i in range(4))]
