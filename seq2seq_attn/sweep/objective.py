"""The figure of a complete run that a study goes by."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from seq2seq_attn.errors import UserError
from seq2seq_attn.sweep.job import RESULTS, read_json

METRICS = "metrics.csv"


def objective(folder: Path, metric: str, *, maximize: bool) -> float:
    """One of results.json, or the best that metrics.csv has of it; NaN if it never was a number.

    Raises:
        UserError: if the run has no such figure.
    """
    found = read_json(folder / RESULTS)
    results = {name: value for name, value in found.items() if isinstance(value, int | float)}
    if metric in results:
        return float(results[metric])
    with (folder / METRICS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0]) if rows else []
    if metric not in columns:
        names = ", ".join(sorted({name for name in [*results, *columns] if "/" in name}))
        raise UserError(f"optimized_metric={metric} is no figure of a run; choose from: {names}")
    values = [value for row in rows if row[metric] and math.isfinite(value := float(row[metric]))]
    return (max if maximize else min)(values, default=math.nan)
