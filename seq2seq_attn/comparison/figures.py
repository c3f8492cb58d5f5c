"""What the page says of a group: means over seeds, differences from the baseline, and the few words on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from seq2seq_attn.comparison.read import Run
from seq2seq_attn.comparison.rows import Group, Row
from seq2seq_attn.comparison.significance import Counted, Difference, differences
from seq2seq_attn.errors import UserError

ROUNDING = 0.01  # BLEU of translations.tsv and results.json may differ by it


class Column(NamedTuple):
    """A figure of results.json.

    Attributes:
        unit: one of the unit shown, in that of the file.
        best: whether the highest or the lowest is the best; None: neither.
    """

    title: str
    digits: int
    unit: float = 1.0
    best: str | None = None


class Mean(NamedTuple):
    """Over seeds; of one there is no standard deviation."""

    mean: float
    sd: float | None


class Figures(NamedTuple):
    """Of one group; whatever is of a row is under its label.

    Attributes:
        rows: the highest BLEU first.
        by: what names them.
        chosen: whether the baseline was asked for; if not, it is the first row.
        lengths: sentences of each length.
        by_length: their BLEU, mean over seeds.
        notes: in a sentence each.
    """

    title: str
    rows: list[Row]
    by: str
    columns: dict[str, Column]
    means: dict[str, dict[str, Mean]]
    baseline: str
    chosen: bool
    differences: dict[str, Difference]
    resamples: int
    lengths: dict[str, int]
    by_length: dict[str, dict[str, float]]
    notes: list[str]

    def mean(self, row: Row, key: str) -> float:
        """NaN where no run has the figure."""
        found = self.means[row.label].get(key)
        return math.nan if found is None else found.mean


def figures_of(group: Group, baseline: str | None, resamples: int) -> Figures:
    """All figures of a group, its rows sorted by BLEU.

    Raises:
        UserError: if the name of the baseline could be that of several rows.
    """
    means = {row.label: means_of(row, columns_of(group.rows)) for row in group.rows}
    columns = {
        key: column for key, column in columns_of(group.rows).items() if any(key in own for own in means.values())
    }
    bleu = next(iter(columns))
    rows = sorted(group.rows, key=lambda row: -numeric(means[row.label][bleu].mean))
    asked = find_row(rows, baseline)
    against = asked or rows[0]
    counted = {run.name: Counted(run) for row in rows for run in row.runs}
    lengths = {run: of.by_length() for run, of in counted.items()}
    first = lengths[rows[0].runs[0].name]
    notes = list(group.warnings)
    if baseline and not asked:
        notes.append(f"No run here has {group.by}={baseline}: the baseline is the one with the highest BLEU.")
    notes += [note for row in rows for run in row.runs for note in disagreement(run, counted[run.name])]
    return Figures(
        group.title,
        rows,
        group.by,
        columns,
        means,
        against.label,
        asked is not None,
        differences(rows, counted, against, resamples),
        resamples,
        {label: sentences for label, (sentences, _) in first.items()},
        {row.label: {label: fmean(lengths[run.name][label][1] for run in row.runs) for label in first} for row in rows},
        notes,
    )


def columns_of(rows: Sequence[Row]) -> dict[str, Column]:
    """BLEU of the test set first; BLEU of others, such as unseen combinations, behind what is known of it."""
    stage = rows[0].runs[0].stage
    others = {
        key: Column(f"BLEU, {key.removesuffix('/bleu').removeprefix('test_')}", 1, best="high")
        for row in rows
        for run in row.runs
        for key in run.results
        if key.endswith("/bleu") and key != f"{stage}/bleu"
    }
    return {
        f"{stage}/bleu": Column("BLEU", 1, best="high"),
        f"{stage}/chrf": Column("chrF", 1, best="high"),
        f"{stage}/ppl": Column("perplexity", 2, best="low"),
        **others,
        "num_parameters": Column("parameters, M", 2, 1e6, best="low"),
        "steps": Column("updates", 0),
        "tokens_per_second": Column("training, tokens/s", 0, best="high"),
        "peak_memory_bytes": Column("peak memory, MB", 0, 1e6, best="low"),
        "decode_sentences_per_second": Column("decoding, sentences/s", 0, best="high"),
        "attention_entropy": Column("attention entropy, nats", 2),
    }


def means_of(row: Row, keys: Iterable[str]) -> dict[str, Mean]:
    """Of the figures that a run has; another version may have had others."""
    found = {}
    for key in keys:
        values = [run.results[key] for run in row.runs if isinstance(run.results.get(key), int | float)]
        if values:
            sd = stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
            found[key] = Mean(fmean(values), sd)
    return found


def numeric(value: float) -> float:
    """NaN, of a run that diverged, is below everything."""
    return -math.inf if math.isnan(value) else value


def find_row(rows: Sequence[Row], name: str | None) -> Row | None:
    """The row of that label, or the only one of that attention."""
    alike = [row for row in rows if row.label == name] or [row for row in rows if row.attention == name]
    if len(alike) > 1:
        raise UserError(
            f"the baseline {name} could be any of {', '.join(row.label for row in alike)}; give one of these names"
        )
    return alike[0] if alike else None


def disagreement(run: Run, counted: Counted) -> list[str]:
    """Translations that are not those of the results would be compared in vain."""
    told, found = run.results[f"{run.stage}/bleu"], counted.score()
    if abs(told - found) <= ROUNDING:
        return []
    return [
        f"{run.name}: results.json has BLEU {told:.2f}, its translations have {found:.2f}: the difference from the "
        "baseline and BLEU by length are of the translations."
    ]


def verdict(figures: Figures) -> list[str]:
    """Which attention wins, by how much, whether that is more than chance, and at what cost; a sentence each."""
    bleu, first = next(iter(figures.columns)), figures.rows[0]
    best = figures.means[first.label][bleu]
    spread = f" ± {best.sd:.1f}" if best.sd else ""
    lines = [f"Highest BLEU: {first.label}, {best.mean:.1f}{spread}{lead(figures)}."]
    others = [row for row in figures.rows if row.label != figures.baseline]
    if others:
        lines.append(against_baseline(figures, others))
    speed = "tokens_per_second"
    if len(figures.rows) > 2 and all(speed in own for own in figures.means.values()):
        front = [row.label for row in efficient(figures, figures.rows, speed, lower=False)]
        lines.append(f"Not beaten in BLEU by one that trains as fast: {listed(front)}.")
    return lines


def lead(figures: Figures) -> str:
    """How far the first row is before the second."""
    bleu, (first, *others) = next(iter(figures.columns)), figures.rows
    if not others or math.isnan(figures.mean(others[0], bleu)):
        return ""
    second = others[0]
    distance = figures.mean(first, bleu) - figures.mean(second, bleu)
    if not distance:
        return f", as {second.label} has"
    return f", {f'{distance:.1f}' if distance >= 0.05 else 'less than 0.1'} above {second.label}"


def against_baseline(figures: Figures, others: Sequence[Row]) -> str:
    """Who is above and below the baseline beyond chance, and who is not told apart from it."""
    found = figures.differences
    better = [row.label for row in others if found[row.label].significant and found[row.label].value > 0]
    open_ = [row.label for row in others if not found[row.label].significant]
    worse = len(others) - len(better) - len(open_)
    parts = [f"better: {listed(better)}"] if better else []
    parts += [f"not told apart from it: {listed(open_)}"] if open_ else []
    if worse == len(others):
        whom = others[0].label if worse == 1 else f"all {worse} others"
        return f"{figures.baseline} is better than {whom} beyond the chance of the sentences."
    parts += [f"worse: the other {worse}"] if worse else []
    return f"Against {figures.baseline}: {'; '.join(parts)}."


def efficient(figures: Figures, rows: Sequence[Row], key: str, lower: bool) -> list[Row]:
    """Rows that no other beats in BLEU without losing in the other figure."""
    bleu, sign = next(iter(figures.columns)), -1 if lower else 1
    points = {row.label: (figures.mean(row, bleu), sign * figures.mean(row, key)) for row in rows}

    def beaten(own: tuple[float, float]) -> bool:
        return any(a >= own[0] and b >= own[1] and (a, b) != own for a, b in points.values())

    return [row for row in rows if not any(map(math.isnan, points[row.label])) and not beaten(points[row.label])]


def listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
