"""Figures of a group, and how a table shows them: means over seeds, differences from the baseline, the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from seq2seq_attn.comparison.read import Run
from seq2seq_attn.comparison.rows import Group, Row, share_tokens
from seq2seq_attn.comparison.significance import (
    FLOOR,
    LEAST_DIFFERENCE,
    Counted,
    Difference,
    count_sentences,
    differences,
    enough_resamples,
)
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.names import title_of

ROUNDING = 0.01  # scores of translations.tsv and results.json may differ by it
FEWEST_SEEDS = 3  # of every row, before one is called better than another
SHOWN = {  # beside the metric compared, with what is better
    "chrf": "high", "ter": "low", "tokenized_bleu": "high", "rouge1": "high", "rouge2": "high", "rougeL": "high",
    "sentence_bleu": "high", "distinct1": "high", "distinct2": "high", "exact_match": "high", "comet": "high",
}  # fmt: skip


class Column(NamedTuple):
    """A figure of results.json.

    Attributes:
        unit: the size of the unit shown, in that of the file.
        best: `high` or `low`, whichever is better; None: neither.
    """

    title: str
    digits: int
    unit: float = 1.0
    best: str | None = None


class Cell(NamedTuple):
    """The text of a cell, the value that a table is sorted by, and whether it is the best of its column."""

    text: str
    value: float
    best: bool = False


class Mean(NamedTuple):
    """The mean over seeds; one seed has no standard deviation."""

    mean: float
    sd: float | None


class Figures(NamedTuple):
    """The figures of one group; those of a row are under its label.

    Attributes:
        rows: the best score first.
        by: what names the rows, `attention` or `folder`.
        chosen: whether the baseline was asked for; if not, it is the first row.
        lengths: the number of sentences of each length.
        by_length: their score, mean over seeds.
        notes: warnings, in a sentence each.
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

    @property
    def metric(self) -> str:
        """The name of the metric that is compared, as in metrics.csv."""
        return next(iter(self.columns)).rpartition("/")[2]

    @property
    def score(self) -> str:
        """The title of the metric."""
        return next(iter(self.columns.values())).title

    def mean(self, row: Row, key: str) -> float:
        """Return the mean of a figure; NaN where no run has it."""
        stats = self.means[row.label].get(key)
        return math.nan if stats is None else stats.mean


def figures_of(group: Group, baseline: str | None, resamples: int) -> Figures:
    """Compute all figures of a group, its rows sorted by score.

    Raises:
        UserError: if several rows have the name of the baseline.
    """
    columns = columns_of(group.rows)
    means = {row.label: means_of(row, columns) for row in group.rows}
    columns = {name: column for name, column in columns.items() if any(name in one for one in means.values())}
    main, column = next(iter(columns.items()))
    rows = sorted(group.rows, key=lambda row: -numeric(means[row.label][main].mean))
    asked = find_row(rows, baseline)
    against = asked or rows[0]
    counts = {run.name: count_sentences(run) for row in rows for run in row.runs}
    counts_of_rows = {row.label: [counts[run.name] for run in row.runs] for row in rows}
    resamples = enough_resamples(resamples, len(rows) - 1)
    lengths = {run.name: counts[run.name].by_length(run.system.sources) for row in rows for run in row.runs}
    first = lengths[rows[0].runs[0].name]
    notes = list(group.warnings)
    if baseline and not asked:
        notes.append(f"No run here has {group.by}={baseline}: the baseline is the one with the highest {column.title}.")
    notes += [note for row in rows for run in row.runs for note in disagreement(run, counts[run.name])]
    return Figures(
        group.title,
        rows,
        group.by,
        columns,
        means,
        against.label,
        asked is not None,
        differences(counts_of_rows, against.label, resamples, chosen=asked is not None),
        resamples,
        {label: sentences for label, (sentences, _) in first.items()},
        {row.label: {label: fmean(lengths[run.name][label][1] for run in row.runs) for label in first} for row in rows},
        notes,
    )


def columns_of(rows: Sequence[Row]) -> dict[str, Column]:
    """Return the columns: the score of the test set first, that of other test sets after its other metrics.

    Of rows with different tokenizers, none is best in a figure of tokens.
    """
    stage, metric = rows[0].runs[0].stage, rows[0].runs[0].metric
    less, more = ("low", "high") if share_tokens(rows) else (None, None)
    title = title_of(metric)
    others = {
        key: Column(f"{title}, {key.removesuffix(f'/{metric}').removeprefix('test_')}", 1, best="high")
        for row in rows
        for run in row.runs
        for key in run.results
        if key.endswith(f"/{metric}") and key != f"{stage}/{metric}"
    }
    return {
        f"{stage}/{metric}": Column(title if stage != "test_train" else f"{title} of training pairs", 1, best="high"),
        **{f"{stage}/{name}": Column(title_of(name), 1, best=best) for name, best in SHOWN.items() if name != metric},
        f"{stage}/aer": Column(title_of("aer"), 1, best="low"),
        f"{stage}/average_lagging": Column("average lagging, tokens", 2, best=less),
        f"{stage}/ppl": Column("perplexity", 2, best=less),
        **others,
        "num_parameters": Column("parameters, M", 2, 1e6, best="low"),
        "steps": Column("updates", 0),
        "tokens_per_second": Column("training, tokens/s", 0, best=more),
        "peak_memory_bytes": Column("peak memory, MB", 0, 1e6, best="low"),
        "decode_sentences_per_second": Column("decoding, sentences/s", 0, best="high"),
        "attention_entropy": Column("attention entropy, nats", 2),
    }


def means_of(row: Row, keys: Iterable[str]) -> dict[str, Mean]:
    """Return the mean of each figure that the runs have; another version may have logged others."""
    means = {}
    for key in keys:
        values = [run.results[key] for run in row.runs if isinstance(run.results.get(key), int | float)]
        if values:
            sd = stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
            means[key] = Mean(fmean(values), sd)
    return means


def numeric(value: float) -> float:
    """Return a sort key that puts NaN, of a run that diverged, below everything."""
    return -math.inf if math.isnan(value) else value


def find_row(rows: Sequence[Row], name: str | None) -> Row | None:
    """Return the row of that label, or the only one of that attention."""
    alike = [row for row in rows if row.label == name] or [row for row in rows if row.attention == name]
    if len(alike) > 1:
        raise UserError(
            f"the baseline {name} could be any of {', '.join(row.label for row in alike)}; give one of these names"
        )
    return alike[0] if alike else None


def disagreement(run: Run, counts: Counted) -> list[str]:
    """Return a note if the translations are not those that results.json scored."""
    logged, recomputed = run.results[f"{run.stage}/{run.metric}"], counts.score()
    title = title_of(run.metric)
    if abs(logged - recomputed) <= ROUNDING:
        return []
    return [
        f"{run.name}: results.json has {title} {logged:.2f}, its translations have {recomputed:.2f}: the difference "
        f"from the baseline and {title} by length are of the translations."
    ]


def verdict(figures: Figures) -> list[str]:
    """Return which attention is best, by how much, whether that is significant, and at what cost; a sentence each."""
    main, first = next(iter(figures.columns)), figures.rows[0]
    best = figures.means[first.label][main]
    spread = f" ± {best.sd:.1f}" if best.sd else ""
    lines = [f"Highest {figures.score}: {first.label}, {best.mean:.1f}{spread}{lead(figures)}."]
    others = [row for row in figures.rows if row.label != figures.baseline]
    if others:
        lines.append(against_baseline(figures, others))
    speed = "tokens_per_second"
    known = all(speed in row_means for row_means in figures.means.values())
    if len(figures.rows) > 2 and known and figures.columns[speed].best:
        front = [row.label for row in efficient(figures, figures.rows, speed, lower=False)]
        lines.append(f"Pareto front of {figures.score} and training speed: {listed(front)}.")
    return lines


def lead(figures: Figures) -> str:
    """Return how far the first row is above the second."""
    main, (first, *others) = next(iter(figures.columns)), figures.rows
    if not others or math.isnan(figures.mean(others[0], main)):
        return ""
    second = others[0]
    distance = figures.mean(first, main) - figures.mean(second, main)
    if not distance:
        return f", as {second.label} has"
    return f", {f'{distance:.1f}' if distance >= 0.05 else 'less than 0.1'} above {second.label}"


def against_baseline(figures: Figures, others: Sequence[Row]) -> str:
    """Return which rows differ significantly from the baseline, and which do not.

    The test covers the sentences, not the seeds. So none is called better or worse before all have `FEWEST_SEEDS`, nor
    one with a seed on the other side of a seed of the baseline.
    """
    fewest = min(len(row.runs) for row in figures.rows)
    certain = fewest >= FEWEST_SEEDS
    seeds = "" if certain else ", with one seed" if fewest == 1 else ", with these seeds"
    by_label = figures.differences
    baseline = next(row for row in figures.rows if row.label == figures.baseline)
    open_ = [row.label for row in others if not by_label[row.label].significant]
    tested = [row for row in others if certain and row.label not in open_]
    mixed = [row.label for row in tested if seeds_overlap(figures, row, baseline)]
    better = [row.label for row in others if row.label not in (*open_, *mixed) and by_label[row.label].value > 0]
    worse = len(others) - len(better) - len(open_) - len(mixed)
    above, below = ("better", "worse") if certain else ("higher", "lower")
    parts = [f"{above}: {listed(better)}"] if better else []
    parts += [f"different, but seeds overlap: {listed(mixed)}"] if mixed else []
    parts += [f"no significant difference: {listed(open_)}"] if open_ else []
    if worse == len(others):
        whom = others[0].label if worse == 1 else f"all {worse} others"
        best = f"{figures.baseline} is better than" if certain else f"{figures.baseline} scores higher than"
        return f"{best} {whom} beyond the chance of the sentences{seeds}."
    parts += [f"{below}: the other {worse}"] if worse else []
    return f"Against {figures.baseline}{seeds}: {'; '.join(parts)}."


def seeds_overlap(figures: Figures, row: Row, other: Row) -> bool:
    """Return whether neither row has all its seeds above all those of the other."""
    main = next(iter(figures.columns))
    ours, theirs = ([run.results[main] for run in one.runs] for one in (row, other))
    return not (min(ours) > max(theirs) or max(ours) < min(theirs))


def efficient(figures: Figures, rows: Sequence[Row], key: str, lower: bool) -> list[Row]:
    """Return the Pareto front: rows that no other beats in the score without losing in the other figure."""
    main, sign = next(iter(figures.columns)), -1 if lower else 1
    points = {row.label: (figures.mean(row, main), sign * figures.mean(row, key)) for row in rows}

    def beaten(point: tuple[float, float]) -> bool:
        return any(a >= point[0] and b >= point[1] and (a, b) != point for a, b in points.values())

    return [row for row in rows if not any(map(math.isnan, points[row.label])) and not beaten(points[row.label])]


def listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def about_test(figures: Figures) -> str:
    reason = "" if figures.chosen else f", which has the highest {figures.score}; --baseline chooses another"
    floor = FLOOR if figures.metric == "bleu" else f"No difference below {LEAST_DIFFERENCE:g} is marked."
    corrected = "corrected for the choice of the best row"
    if figures.chosen:
        corrected = f"after Holm's correction for {counted(len(figures.differences), 'comparison')}"
    return (
        f"{figures.score} above {figures.baseline}{reason}. 95 % and p: of {figures.resamples:,} test sets drawn with "
        "replacement, the same for all (paired bootstrap, Koehn 2004). Filled, or *: p < 0.05 "
        f"{corrected}. {floor} The test covers the choice of sentences, not that of seeds."
    )


def head_of(figures: Figures) -> list[str]:
    tested = [f"{figures.score} above {figures.baseline}", "95 %", "p"] if figures.differences else []
    main, *others = (column.title for column in figures.columns.values())
    return [figures.by, "seeds", main, *tested, *others]


def cells_of(figures: Figures, row: Row) -> list[Cell]:
    """Return the cells of a row after its name."""
    main, *others = (mean_cell(figures, row, key, column) for key, column in figures.columns.items())
    tested = difference_cells(figures, row) if figures.differences else []
    return [Cell(str(len(row.runs)), len(row.runs)), main, *tested, *others]


def difference_cells(figures: Figures, row: Row) -> list[Cell]:
    difference = figures.differences.get(row.label)
    if difference is None:
        return [Cell("baseline", 0.0), Cell("", math.nan), Cell("", math.nan)]
    p = (
        Cell("same", 1.0)
        if difference.p is None
        else Cell(f"{difference.p:.3f}{'*' * difference.significant}", difference.p)
    )
    return [
        Cell(signed(difference.value), difference.value),
        Cell(f"{signed(difference.low)} to {signed(difference.high)}", difference.low),
        p,
    ]


def mean_cell(figures: Figures, row: Row, key: str, column: Column) -> Cell:
    stats = figures.means[row.label].get(key)
    if stats is None:
        return Cell("–", math.nan)
    text = f"{stats.mean / column.unit:,.{column.digits}f}"
    if stats.sd:  # seeds change no count
        text += f" ± {stats.sd / column.unit:,.{column.digits}f}"
    if key == "peak_memory_bytes" and any(run.memory_is_bound for run in row.runs):
        text = f"≤ {text}"
    return Cell(text, stats.mean / column.unit, shown(stats.mean, column) == best_of(figures, key, column))


def best_of(figures: Figures, key: str, column: Column) -> float | None:
    """Return the best value of a column; None where it has none, or it is not known."""
    runs = [run for row in figures.rows for run in row.runs]
    if key == "peak_memory_bytes" and any(run.memory_is_bound for run in runs):
        return None
    values = [figures.mean(row, key) for row in figures.rows]
    known = [shown(value, column) for value in values if math.isfinite(value)]
    if column.best is None or len(set(known)) < 2:
        return None
    return max(known) if column.best == "high" else min(known)


def shown(value: float, column: Column) -> float:
    """Return the value as the table rounds it."""
    return round(value / column.unit, column.digits)


def signed(value: float) -> str:
    """Return `+1.2`, `−0.3`, and 0.0 without a sign."""
    text = f"{value:+.1f}".replace("-", "−")
    return text[1:] if text[1:] == "0.0" else text


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
