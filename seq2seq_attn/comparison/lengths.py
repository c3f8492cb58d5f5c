"""Scores of runs on the short, middle and long third of a test set: `seq2seq-attn compare lengths RUN RUN ...`.

The metric is the one by which `compare runs` compares a run; for a run that has none, distinct-n or BLEU. A run whose
metric has other options than that of an earlier run is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from seq2seq_attn.checkpoint.admitted import Trust, add_trust_option, build
from seq2seq_attn.comparison.read import (
    DAMAGED,
    LeftOut,
    compared_metric,
    definition_of,
    find_runs,
    first_line,
    no_finished_run,
    parsed,
    text_of,
    unfinished,
)
from seq2seq_attn.comparison.system import System, read_system
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.language import metric_language, with_language
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.text import num_words, plain_console

WIDTH = 200  # columns of a table that is not on a terminal


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of them")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    table = Table("run", "attention", "metric")
    for column in ("test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="right")
    left_out: list[LeftOut] = []
    first: tuple[Path, tuple[list[str], list[list[str]]]] | None = None
    definitions: dict[str, tuple[Path, str]] = {}  # of each metric, with the first run that has it
    runs = find_runs(given.runs)
    common = os.path.commonpath([run.parent for run in runs]) if runs else ""
    for run in runs:
        if reason := unfinished(run):
            left_out.append(LeftOut(str(run), reason))
            continue
        try:
            results, config = json.loads(text_of(run / "results.json")), parsed(run / "config.yaml")
            name = compared_metric(config, results, given.trust)
            name = name or compared_metric(config, results, given.trust, resampled=False) or "bleu"
            if not isinstance(attention := results.get("attention", run.name), str):
                raise TypeError("attention is not what a run writes")
        except DAMAGED as error:
            left_out.append(LeftOut(str(run), f"results.json or config.yaml is damaged ({first_line(error)})"))
            continue
        try:
            test = read_system(run, "test")
            scorer = scorer_of(run, name, config, given.trust, test)
            row = list(scores(run, scorer))
        except UserError as error:
            left_out.append(LeftOut(str(run), str(error).partition(";")[0]))
            continue
        first = first or (run, (test.sources, test.references))
        if (test.sources, test.references) != first[1]:
            left_out.append(LeftOut(str(run), f"its test set is not that of {first[0]}"))
            continue
        definition = definition_of(scorer)
        other, usual = definitions.setdefault(name, (run, definition))
        if definition != usual:
            left_out.append(LeftOut(str(run), f"its {name} ({definition}) has other options than that of {other}"))
            continue
        table.add_row(os.path.relpath(run, common), attention, name, *row)
    if not table.row_count:
        raise no_finished_run(given.runs, left_out)
    console = plain_console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)
    for folder, reason in left_out:
        print(f"left out: {folder}: {reason}", file=sys.stderr)


def scorer_of(run: Path, name: str, config: dict[str, Any], trust: Trust, test: System) -> TextMetric:
    references = [versions[0] for versions in test.references]
    if name not in config["metric"]:
        language = metric_language((config.get("data") or {}).get("target_language"), references)
        return BLEU(lowercase=False, tokenize="auto", language=language)
    options = with_language(config["metric"][name], references)
    scorer: TextMetric = build(options, "metric", run / "config.yaml", trust)
    return scorer


def scores(run: Path, scorer: TextMetric) -> Iterator[str]:
    """Yield the score of a run's test set, of its thirds, and of the unseen combinations if there are some."""
    test = read_system(run, "test")
    for rows in (list(range(len(test.sources))), *thirds(test.sources)):
        yield f"{score_of(test, rows, scorer):.1f}" if rows else ""
    if (run / "translations_unseen.tsv").exists():
        unseen = read_system(run, "unseen")
        yield f"{score_of(unseen, list(range(len(unseen.sources))), scorer):.1f}"


def score_of(system: System, rows: list[int], scorer: TextMetric) -> float:
    hypotheses, sources = ([side[row] for row in rows] for side in (system.hypotheses, system.sources))
    counts = scorer.sentence_counts(hypotheses, [system.references[row] for row in rows], sources)
    return float(scorer.score([sum(column) for column in zip(*counts, strict=True)]))


def thirds(sources: list[str]) -> list[list[int]]:
    """Return the rows sorted by words of the source, cut into three."""
    rows = sorted(range(len(sources)), key=lambda row: num_words(sources[row]))
    return [rows[start:end] for start, end in pairwise(len(rows) * i // 3 for i in range(4))]
