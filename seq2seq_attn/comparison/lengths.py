"""BLEU of runs on the short, middle and long third of a test set: `seq2seq-attn compare lengths RUN RUN ...`."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path

import sacrebleu
from rich.table import Table

from seq2seq_attn.comparison.translations import read_system
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.text import plain_console

Row = tuple[str, str, str]


def read(run: Path, split: str) -> list[Row]:
    """Source, reference, hypothesis of each line."""
    _, sources, hypotheses, references = read_system(run, split)
    return [(source, versions[0], said) for source, versions, said in zip(sources, references, hypotheses, strict=True)]


def thirds(rows: list[Row]) -> list[list[Row]]:
    """The rows sorted by words of the source, cut into three."""
    by_length = sorted(rows, key=lambda row: len(row[0].split()))
    cuts = [len(rows) * i // 3 for i in range(4)]
    return [by_length[start:end] for start, end in pairwise(cuts)]


def bleu(rows: list[Row]) -> float:
    return sacrebleu.corpus_bleu([row[2] for row in rows], [[row[1] for row in rows]]).score


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    runs = parser.parse_args().runs
    table = Table()
    for column in ("attention", "test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="left" if column == "attention" else "right")
    for run in runs:
        rows = read(run, "test")
        scores = [bleu(rows), *(bleu(third) for third in thirds(rows))]
        scores += [bleu(read(run, "unseen"))] if (run / "translations_unseen.tsv").exists() else []
        table.add_row(
            json.loads((run / "results.json").read_text())["attention"], *(f"{score:.1f}" for score in scores)
        )
    plain_console().print(table)
