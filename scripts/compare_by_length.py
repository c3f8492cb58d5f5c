"""BLEU of runs on the short, middle and long third of a test set: `python scripts/compare_by_length.py RUN RUN ...`."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path

import sacrebleu
from rich.console import Console
from rich.table import Table


def read(file: Path) -> list[list[str]]:
    """Source, reference, hypothesis of each line."""
    return [line.split("\t") for line in file.read_bytes().decode().removesuffix("\n").split("\n")]


def thirds(rows: list[list[str]]) -> list[list[list[str]]]:
    """The rows sorted by words of the source, cut into three."""
    by_length = sorted(rows, key=lambda row: len(row[0].split()))
    cuts = [len(rows) * i // 3 for i in range(4)]
    return [by_length[start:end] for start, end in pairwise(cuts)]


def bleu(rows: list[list[str]]) -> float:
    return sacrebleu.corpus_bleu([row[2] for row in rows], [[row[1] for row in rows]]).score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    runs = parser.parse_args().runs
    table = Table()
    for column in ("attention", "test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="left" if column == "attention" else "right")
    for run in runs:
        rows = read(run / "translations.tsv")
        unseen = run / "translations_unseen.tsv"
        scores = [bleu(rows), *(bleu(third) for third in thirds(rows))]
        scores += [bleu(read(unseen))] if unseen.exists() else []
        table.add_row(
            json.loads((run / "results.json").read_text())["attention"], *(f"{score:.1f}" for score in scores)
        )
    Console().print(table)


if __name__ == "__main__":
    main()
