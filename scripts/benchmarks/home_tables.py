"""The rows of the tables of `homes.py`, with their differences from the usual attention of their home."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from scripts.benchmarks.home_runs import HOMES, SEEDS, unpack
from seq2seq_attn.comparison.significance import Counted, Difference, differences
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.bleu import BLEU

METRIC = BLEU(lowercase=False, tokenize="13a")  # which only adds up counts here


class Row(NamedTuple):
    """An attention in a home, with the rows of its seeds in their order."""

    preset: str
    seeds: list[dict[str, Any]]

    @property
    def scores(self) -> list[float]:
        return [row["bleu"] for row in self.seeds]


class Table(NamedTuple):
    """The runs of a home.

    Attributes:
        rows: the highest BLEU first.
        refused: the presets that the home does not take, with the reason.
        differences: from the usual attention, by preset; empty before its run.
    """

    name: str
    rows: list[Row]
    refused: dict[str, str]
    differences: dict[str, Difference]


def table_of(name: str, finished: Sequence[dict[str, Any]], resamples: int) -> Table:
    """Return the rows of a home, and test their differences from the usual attention.

    Raises:
        UserError: if runs differ in their updates, and so in their batches or vocabulary.
    """
    updates = sorted({row["updates"] for row in finished if row["home"] == name and "updates" in row})
    if len(updates) > 1:
        raise UserError(
            f"runs of {name} have {' and '.join(map(str, updates))} updates, so their vocabularies differ (as those of "
            "two versions of SentencePiece do) or their batches; keep the rows of one number"
        )
    refused: dict[str, str] = {}
    seeds: dict[str, list[dict[str, Any]]] = {}
    for row in finished:
        if row["home"] == name and "refused" in row:
            refused[row["preset"]] = row["refused"]
        elif row["home"] == name:
            seeds.setdefault(row["preset"], []).append(row)
    rows = [Row(preset, sorted(given, key=lambda row: row["seed"])) for preset, given in seeds.items()]
    rows.sort(key=lambda row: -fmean(row.scores))
    usual = HOMES[name].usual
    if usual not in seeds or len(rows) == 1:
        return Table(name, rows, refused, {})
    counts = {row.preset: [Counted(METRIC, unpack(seed["counts"])) for seed in row.seeds] for row in rows}
    return Table(name, rows, refused, differences(counts, usual, resamples))


def judged(row: Row, usual: Row, difference: Difference) -> str:
    """Return `better`, `worse` or nothing, which is all that rows of fewer seeds get."""
    scores, others = row.scores, usual.scores
    if min(len(scores), len(others)) < len(SEEDS) or not difference.significant:
        return ""
    if min(scores) > max(others) and difference.value > 0:
        return "better"
    return "worse" if max(scores) < min(others) and difference.value < 0 else ""
