"""Page, figures and plot of the runs of `homes.py`: `python -m scripts.benchmarks.homes page --runs FOLDER`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from omegaconf import OmegaConf

from scripts.benchmarks.home_runs import (
    BEST,
    CAPTIONS,
    COMMON,
    EPOCHS,
    HOMES,
    MEASURES,
    ROWS,
    SEEDS,
    presets,
    read_rows,
    short_commits,
)
from seq2seq_attn.comparison.read import Run, curve_of, read_runs
from seq2seq_attn.comparison.rows import Row
from seq2seq_attn.comparison.significance import Counted, Difference, differences
from seq2seq_attn.errors import UserError
from seq2seq_attn.markdown import code, literal

CURVE = "val/bleu"
COLUMNS = (  # the key of a row or measurement, its title, unit and format
    ("chrf", "chrF", 1, ".1f"),
    ("loss", "loss, nats", 1, ".3f"),
    ("entropy", "entropy, nats", 1, ".2f"),
    ("aer", "AER, %", 1, ".1f"),
    ("tokens_per_second", "training, tokens/s", 1, ",.0f"),
    ("peak_memory_bytes", "memory, MB", 1e6, ",.0f"),
    ("decode_sentences_per_second", "decoding, sentences/s", 1, ",.0f"),
)
PAGE = """\
# Attentions in their homes

A home is a place of a model that takes an attention. Each table compares all attentions in one home. Its models have
one size and are trained on the first {captions:,} captions of Multi30k, English to French, for {epochs} epochs of one
schedule whose learning rate falls to zero; the corpus is this small so that the curves flatten. Scores are those of
test_2016_flickr with greedy search and the weights that were best in validation. So far {runs} runs have finished.

- Only rows of {seeds} seeds are judged: **better** or **worse** than the home's usual attention if the difference is
  significant over sentences (paired bootstrap, Koehn 2004, {resamples:,} test sets, p < 0.05 after Holm's correction
  for the rows of the table) and all seeds of the one are above all seeds of the other. ± is the standard deviation over
  seeds.
- ¹ The row has fewer seeds: the spread between seeds is unknown, and the row is neither better nor worse than another.
- 95 %: the interval of the difference over the resampled test sets, of the mean over seeds.
- The width in the last column makes the models equally large; the percentage is the difference that remains from the
  model of the usual attention.
- Loss is that of the test set per token, label smoothing not counted; entropy is that of the attention to the source.
- AER is the alignment error rate of the attention to the source on the pairs of `seq2seq-attn align`, whose sentences
  are no captions. Speed and memory were measured apart, with nothing else on the machine, on one thread; – is not
  measured.
- BLEU: {signature}
- Commits of the runs: {commits}

![Validation BLEU by updates]({name}.png)

*Validation BLEU of 256 sentences by updates, seed {first_seed}. Black: the usual attention; dashed: none; colours: the
best others; grey: the rest.*

{sections}
## Commands

```
python -m scripts.benchmarks.homes run --data FOLDER --runs RUNS
python -m scripts.benchmarks.homes measure --data FOLDER --runs RUNS
python -m scripts.benchmarks.homes page --runs RUNS
```

The first trains what has not been trained yet, and goes on after an interruption; the second must run alone. `FOLDER`
contains `multi30k` with the captions and `tatoeba/fra.txt`. The raw figures are in [{name}.json]({name}.json).
"""
SECTION = """\
## {title}

{command}, seed {seeds}; `data.path=` is a folder of the captions with the first {captions:,} training pairs. {finished}
of {all} attentions have finished.

{table}
"""


class Table(NamedTuple):
    """The runs of a home.

    Attributes:
        rows: the highest BLEU first, each named by its preset.
        refused: the presets that the home does not take, with the reason.
        differences: from the usual attention, by preset; empty before its run.
    """

    name: str
    rows: list[Row]
    refused: dict[str, str]
    differences: dict[str, Difference]


def write_page(runs: Path, homes: Sequence[str], page: Path, resamples: int) -> None:
    """Write the page, the figures as .json and the plot as .png beside it."""
    finished = [row for row in read_rows(runs / ROWS) if row["home"] in homes]
    if not any("bleu" in row for row in finished):
        raise UserError(f"{runs} has no finished run of {', '.join(homes)}; start `scripts.benchmarks.homes run` first")
    measures = [row for row in read_rows(runs / MEASURES) if row["home"] in homes]
    tables = [table_of(runs, name, finished, resamples) for name in homes]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text_of(tables, finished, measures, page.stem, resamples), encoding="utf-8")
    found = {table.name: {preset: found._asdict() for preset, found in table.differences.items()} for table in tables}
    figures = {"rows": finished, "measures": measures, "resamples": resamples, "differences": found}
    page.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    plot(tables, page.with_suffix(".png"))
    print(f"wrote {page}: {sum(len(row.runs) for table in tables for row in table.rows)} runs")


def table_of(runs: Path, name: str, finished: Sequence[dict[str, Any]], resamples: int) -> Table:
    """Read the runs of a home that have a row, and test their differences from the usual attention."""
    own = [row for row in finished if row["home"] == name]
    refused = {row["preset"]: row["refused"] for row in own if "refused" in row}
    by_preset: dict[str, list[Run]] = {}
    for row in own:
        if "bleu" in row:
            (run,), _ = read_runs([runs / row["folder"]])
            by_preset.setdefault(row["preset"], []).append(run._replace(name=row["folder"]))
    rows = [Row(preset, preset, sorted(of_row, key=lambda run: run.seed)) for preset, of_row in by_preset.items()]
    rows.sort(key=lambda row: -fmean(scores(row)))
    usual = next((row for row in rows if row.label == HOMES[name].usual), None)
    if usual is None or len(rows) == 1:
        return Table(name, rows, refused, {})
    counted = {run.name: Counted(run) for row in rows for run in row.runs}
    return Table(name, rows, refused, differences(rows, counted, usual, resamples))


def scores(row: Row) -> list[float]:
    return [run.results["test/bleu"] for run in row.runs]


def judged(row: Row, usual: Row, difference: Difference) -> str:
    """Return `better`, `worse` or nothing, which is all that rows of fewer seeds get."""
    own, others = scores(row), scores(usual)
    if min(len(own), len(others)) < len(SEEDS) or not difference.significant:
        return ""
    if min(own) > max(others) and difference.value > 0:
        return "better"
    return "worse" if max(own) < min(others) and difference.value < 0 else ""


def text_of(
    tables: Sequence[Table],
    finished: Sequence[dict[str, Any]],
    measures: Sequence[dict[str, Any]],
    name: str,
    resamples: int,
) -> str:
    runs = [row for row in finished if "bleu" in row]
    return PAGE.format(
        captions=CAPTIONS,
        epochs=EPOCHS,
        runs=len(runs),
        seeds=len(SEEDS),
        resamples=resamples,
        signature=", ".join(code(signature) for signature in sorted({row["bleu_signature"] for row in runs})),
        commits=short_commits(runs),
        name=name,
        first_seed=SEEDS[0],
        sections="\n".join(section(table, finished, measures) for table in tables),
    )


def section(table: Table, finished: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]]) -> str:
    home = HOMES[table.name]
    figures: dict[str, list[dict[str, Any]]] = {}
    for row in [*finished, *measures]:
        if row["home"] == table.name:
            figures.setdefault(row["preset"], []).append(row)
    width = home.widths[-1].rpartition(".")[2]
    titles = [
        "attention",
        "seeds",
        "BLEU",
        f"above {home.usual}",
        "95 %",
        "verdict",
        *(column[1] for column in COLUMNS),
    ]
    titles += ["parameters, M", "difference", width]
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)]]
    lines += [cells(table, row, figures) for row in table.rows]
    lines += [
        [literal(preset), "–", f"not taken: {literal(reason)}", *[""] * (len(titles) - 3)]
        for preset, reason in table.refused.items()
    ]
    return SECTION.format(
        title=home.title,
        command=code(
            " ".join(
                [
                    "python train.py",
                    *COMMON,
                    *home.model,
                    f"{home.slot}=PRESET",
                    *(f"{option}=WIDTH" for option in home.widths),
                ]
            )
        ),
        seeds="1" if all(len(row.runs) == 1 for row in table.rows) else f"{SEEDS[0]} to {SEEDS[-1]}",
        captions=CAPTIONS,
        finished=len(table.rows) + len(table.refused),
        all=len(home.only or presets()),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


def cells(table: Table, row: Row, figures: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the cells of an attention's row."""
    home, own = HOMES[table.name], scores(row)
    usual = next((other for other in table.rows if other.label == home.usual), None)
    found = table.differences.get(row.label)
    if usual is None or found is None:
        compared = ["usual" if row is usual else "–", "", ""]
    else:
        bounds = f"{found.low:+.1f} to {found.high:+.1f}"
        compared = [
            minus(f"{found.value:+.1f}"),
            minus(bounds),
            f"**{verdict}**" if (verdict := judged(row, usual, found)) else "",
        ]
    values = figures[row.label]
    sizes = [run.results["num_parameters"] for run in (row.runs[0], *(usual.runs if usual else ()))]
    width = OmegaConf.select(OmegaConf.create(row.runs[0].config), home.widths[0])
    return [
        literal(row.label) + ("¹" if len(own) < len(SEEDS) else ""),
        str(len(own)),
        spread(own, 1, ".1f"),
        *compared,
        *(
            spread([value[key] for value in values if value.get(key) is not None], unit, form)
            for key, _, unit, form in COLUMNS
        ),
        f"{sizes[0] / 1e6:.3f}",
        minus(f"{100 * (sizes[0] / sizes[1] - 1):+.2f} %") if usual else "–",
        str(width),
    ]


def spread(values: Sequence[float], unit: float, form: str) -> str:
    """Return the mean, with the standard deviation of several values."""
    if not values:
        return "–"
    text = format(fmean(values) / unit, form)
    return f"{text} ± {format(stdev(values) / unit, form)}" if len(values) > 1 else text


def minus(text: str) -> str:
    return text.replace("-", "−")


def plot(tables: Sequence[Table], file: Path) -> None:
    """Draw the curves of the first seed: the usual attention, none, the best others by name, and the rest."""
    tables = [table for table in tables if table.rows]
    rows = -(-len(tables) // 2)
    figure = Figure(figsize=(11, 3.6 * rows), layout="constrained")
    for position, table in enumerate(tables, 1):
        axes = figure.add_subplot(rows, min(2, len(tables)), position)
        for row, style in reversed(list(styled(table))):
            points = curve_of(row.runs[0].log, CURVE)
            axes.plot(*zip(*points, strict=True), **style) if points else None
        axes.set_title(HOMES[table.name].title, fontsize=9)
        axes.set_xlabel("updates", fontsize=8)
        axes.set_ylabel("validation BLEU", fontsize=8)
        axes.tick_params(labelsize=7)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], fontsize=7, loc="lower right")
    figure.savefig(file, dpi=110)


def styled(table: Table) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each row with the style of its curve, the named ones first."""
    named = {HOMES[table.name].usual: {"color": "black"}, "none": {"color": "black", "linestyle": "--"}}
    others = [row for row in table.rows if row.label not in named]
    for row in table.rows:
        if row.label in named:
            yield row, {"label": row.label, "linewidth": 1.4, **named[row.label]}
    for number, row in enumerate(others):
        best = {"label": row.label, "color": f"C{number}", "linewidth": 1.2}
        yield row, best if number < BEST else {"color": "0.85", "linewidth": 0.8}
