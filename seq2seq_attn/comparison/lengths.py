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
from typing import Any, NamedTuple

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


class Scored(NamedTuple):
    """A run and its scores.

    Attributes:
        definition: the signature of the metric, which names its options.
        test_set: the sources, and the references of each.
        scores: see `scores`.
    """

    run: Path
    attention: str
    metric: str
    definition: str
    test_set: tuple[list[str], list[list[str]]]
    scores: list[str]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of them")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    table = Table("run", "attention", "metric")
    for column in ("test", "short third", "middle third", "long third", "unseen combinations"):
        table.add_column(column, justify="right")
    runs = find_runs(given.runs)
    common = os.path.commonpath([run.parent for run in runs]) if runs else ""
    compared, left_out = comparable([scored(run, given.trust) for run in runs])
    if not compared:
        raise no_finished_run(given.runs, left_out)
    for one in compared:
        table.add_row(os.path.relpath(one.run, common), one.attention, one.metric, *one.scores)
    console = plain_console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)
    for folder, reason in left_out:
        print(f"left out: {folder}: {reason}", file=sys.stderr)


def scored(run: Path, trust: Trust) -> Scored | LeftOut:
    """Return a run with its scores, or the reason why it has none."""
    if reason := unfinished(run):
        return LeftOut(str(run), reason)
    try:
        results, config = json.loads(text_of(run / "results.json")), parsed(run / "config.yaml")
        metric = compared_metric(config, results, trust)
        metric = metric or compared_metric(config, results, trust, resampled=False) or "bleu"
        if not isinstance(attention := results.get("attention", run.name), str):
            raise TypeError("attention is not what a run writes")
    except DAMAGED as error:
        return LeftOut(str(run), f"results.json or config.yaml is damaged ({first_line(error)})")
    try:
        test = read_system(run, "test")
        scorer = scorer_of(run, metric, config, trust, test)
        row = list(scores(run, test, scorer))
    except UserError as error:
        return LeftOut(str(run), str(error).partition(";")[0])
    return Scored(run, attention, metric, definition_of(scorer), (test.sources, test.references), row)


def comparable(outcomes: Sequence[Scored | LeftOut]) -> tuple[list[Scored], list[LeftOut]]:
    """Return the runs with the test set and the options of a metric of the first that has it, and those left out."""
    compared: list[Scored] = []
    left_out: list[LeftOut] = []
    first_of_metric: dict[str, Scored] = {}
    for one in outcomes:
        if isinstance(one, LeftOut):
            left_out.append(one)
            continue
        if compared and one.test_set != compared[0].test_set:
            left_out.append(LeftOut(str(one.run), f"its test set is not that of {compared[0].run}"))
            continue
        first = first_of_metric.setdefault(one.metric, one)
        if one.definition == first.definition:
            compared.append(one)
        else:
            reason = f"its {one.metric} ({one.definition}) has other options than that of {first.run}"
            left_out.append(LeftOut(str(one.run), reason))
    return compared, left_out


def scorer_of(run: Path, name: str, config: dict[str, Any], trust: Trust, test: System) -> TextMetric:
    references = [versions[0] for versions in test.references]
    if name not in config["metric"]:
        language = metric_language((config.get("data") or {}).get("target_language"), references)
        return BLEU(lowercase=False, tokenize="auto", language=language)
    options = with_language(config["metric"][name], references)
    scorer: TextMetric = build(options, "metric", run / "config.yaml", trust)
    return scorer


def scores(run: Path, test: System, scorer: TextMetric) -> Iterator[str]:
    """Yield the score of a run's test set, of its thirds, and of the unseen combinations if there are some."""
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
