"""BLEU of runs on the short, middle and long third of a test set: `seq2seq-attn compare lengths RUN RUN ...`."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path

import sacrebleu
from rich.table import Table

from seq2seq_attn.comparison.translations import System, read_system
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.text import plain_console


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    runs = parser.parse_args().runs
    table = Table("attention")
    for column in ("test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="right")
    for run in runs:
        test = read_system(run, "test")
        rows = range(len(test.sources))
        scores = [bleu(test, list(rows)), *(bleu(test, third) for third in thirds(test.sources))]
        if (run / "translations_unseen.tsv").exists():
            unseen = read_system(run, "unseen")
            scores.append(bleu(unseen, list(range(len(unseen.sources)))))
        attention = json.loads((run / "results.json").read_text(encoding="utf-8"))["attention"]
        table.add_row(attention, *(f"{score:.1f}" for score in scores))
    plain_console().print(table)


def thirds(sources: list[str]) -> list[list[int]]:
    """Return the rows sorted by words of the source, cut into three."""
    rows = sorted(range(len(sources)), key=lambda row: len(sources[row].split()))
    return [rows[start:end] for start, end in pairwise(len(rows) * i // 3 for i in range(4))]


def bleu(system: System, rows: list[int]) -> float:
    """Return BLEU of some rows against the first reference of each."""
    hypotheses, references = zip(*((system.hypotheses[row], system.references[row][0]) for row in rows), strict=True)
    return sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score
