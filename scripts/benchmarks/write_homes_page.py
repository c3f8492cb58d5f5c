"""Page, figures and plot of the runs of `homes.py`: `python -m scripts.benchmarks.homes page --runs FOLDER`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from math import comb
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scripts.benchmarks.draw_homes import draw_maps, plot
from scripts.benchmarks.home_runs import (
    CAPTIONS,
    EPOCHS,
    HOMES,
    MEASURES,
    ROWS,
    SEEDS,
    Job,
    command_of_home,
    commits_and_processors,
    presets,
    read_rows,
    rows_of,
)
from scripts.benchmarks.home_tables import Row, Table, judged, table_of
from scripts.benchmarks.write_homes_html import write_html
from seq2seq_attn.errors import UserError
from seq2seq_attn.markdown import code, literal

COLUMNS = (  # the key of a row or measurement, its title, unit and format
    ("chrf", "chrF", 1, ".1f"),
    ("loss", "loss, nats", 1, ".3f"),
    ("entropy", "entropy, nats", 1, ".2f"),
    ("aer", "AER, %", 1, ".1f"),
    ("tokens_per_second", "training, tokens/s", 1, ",.0f"),
    ("peak_memory_bytes", "memory, MB", 1e6, ",.0f"),
    ("decode_sentences_per_second", "decoding, sentences/s", 1, ",.0f"),
)
TIMED = ("tokens_per_second", "peak_memory_bytes", "decode_sentences_per_second")
PAGE = """\
# Attentions in their homes

A home is a place of a model that takes an attention. Each table compares attentions in one home. Its models have
one size and are trained on the first {captions:,} captions of Multi30k, English to French, for {epochs} epochs of one
schedule whose learning rate falls to zero; the corpus is this small so that the curves flatten. Scores are those of
test_2016_flickr with greedy search and the weights that were best in validation. So far {runs} runs have finished.
[{html_name}]({html}) (open it in a browser) has the same tables, which a click sorts,
with the differences drawn, and the curves and the map of every attention.

- Only rows of {seeds} seeds are judged: **better** or **worse** than the home's usual attention if the difference is
  significant over sentences (paired bootstrap, Koehn 2004, at least {resamples:,} test sets, p < 0.05 after Holm's
  correction for the rows of the table) and all seeds of the one are above all seeds of the other. Of two equally good
  attentions, all {seeds} seeds of one are above all {seeds} of the other in one of {chance} cases, and no correction is
  made for that; read a verdict whose ± overlap as a hint. ± is the standard deviation over seeds.
- The runs of a home differ in the attention, the width and the seed alone; no learning rate was tuned for an attention.
- Which rows get {seeds} seeds is in part decided by BLEU on the test set: the five with the highest one of seed
  {first_seed} do, as soon as they have been trained. Their means include that seed, and are therefore a little high.
- ¹ The row has fewer seeds: the spread between seeds is unknown, and the row is neither better nor worse than another.
- 95 %: the interval of the difference over the resampled test sets, of the mean over seeds.
- The width in the last column makes the models equally large; the percentage is the difference that remains from the
  model of the usual attention.
- Loss is that of the test set per token, label smoothing not counted; entropy is that of the attention to the source.
- AER is the alignment error rate of the attention to the source on the pairs of `seq2seq-attn align`, whose sentences
  are no captions. Speed and memory were measured apart, with nothing else on the machine, on one thread; the speed of
  training includes the first update; processors: {processors}. – is not measured, or was measured on another
  processor than the home's usual attention. ² Measured for fewer seeds than the row has.
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

The first trains what has not been trained yet, and resumes after an interruption; the second must run alone. `FOLDER`
contains `multi30k` with the captions and `tatoeba/fra.txt`. On another machine, `restore --runs RUNS` first lets the
runs of this page count as finished. The raw figures are in [{name}.json]({name}.json).
"""
SECTION = """\
## {title}

{command}, seed {seeds}; `data.path=` is a folder of the captions with the first {captions:,} training pairs. {finished}
of {all} attentions have finished{refused}.

{table}
{maps}"""
MAPS = """
![Attention maps of one sentence]({name})

*{what}, mean over the heads of the last layer, seed {seed}, of one sentence of ours along a given translation; darker
is more, grey is less than 0.005. First the usual attention, then the best, then others of the home, twelve at most.*
"""


def write_page(runs: Path, homes: Sequence[str], page: Path, html: Path, resamples: int) -> None:
    """Write the page, the figures as .json and the plots as .png beside it, and the HTML page."""
    finished = [row for row in rows_of(runs / ROWS, Job._fields) if row["home"] in homes]
    if not any("bleu" in row for row in finished):
        raise UserError(f"{runs} has no finished run of {', '.join(homes)}; start `scripts.benchmarks.homes run` first")
    measures = [row for row in read_rows(runs / MEASURES) if row["home"] in homes]
    comparable = on_one_processor(measures)
    tables = [table_of(name, finished, resamples) for name in homes]
    page.parent.mkdir(parents=True, exist_ok=True)
    maps = {}
    for table in tables:
        picture = page.with_name(f"{page.stem}_{table.name}.png")
        if draw_maps(table, measures, picture):
            what = "Self-attention of the source" if table.name == "self" else "Attention to the source"
            maps[table.name] = MAPS.format(name=picture.name, what=what, seed=SEEDS[0])
    write_html(tables, comparable, resamples, html)
    to_html = Path(os.path.relpath(html, page.parent)).as_posix()
    page.write_text(text_of(tables, finished, comparable, maps, page.stem, to_html, resamples), encoding="utf-8")
    differences = {
        table.name: {preset: difference._asdict() for preset, difference in table.differences.items()}
        for table in tables
    }
    figures = {"rows": finished, "measures": measures, "resamples": resamples, "differences": differences}
    content = ",\n".join(f'"{name}": {one_by_line(value)}' for name, value in figures.items())
    page.with_suffix(".json").write_text(f"{{\n{content}\n}}\n", encoding="utf-8")
    plot(tables, page.with_suffix(".png"))
    print(f"wrote {page} and {html}: {sum(len(row.seeds) for table in tables for row in table.rows)} runs")


def one_by_line(value: Any) -> str:
    """Return JSON in which each entry of a list has a line."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"


def text_of(
    tables: Sequence[Table],
    finished: Sequence[dict[str, Any]],
    measures: Sequence[dict[str, Any]],
    maps: dict[str, str],
    name: str,
    html: str,
    resamples: int,
) -> str:
    runs = [row for row in finished if "bleu" in row]
    return PAGE.format(
        captions=CAPTIONS,
        epochs=EPOCHS,
        runs=len(runs),
        seeds=len(SEEDS),
        chance=comb(2 * len(SEEDS), len(SEEDS)) // 2,
        resamples=resamples,
        signature=", ".join(code(signature) for signature in sorted({row["bleu_signature"] for row in runs})),
        commits=commits_and_processors(runs),
        name=name,
        html=html,
        html_name=html.rpartition("/")[2],
        first_seed=SEEDS[0],
        sections="\n".join(section(table, finished, measures, maps.get(table.name, "")) for table in tables),
        processors=processors(measures),
    )


def on_one_processor(measures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measures without speed and memory of another processor than that of the home's usual attention."""
    own: dict[str, str | None] = {}
    timed = [row for row in measures if "tokens_per_second" in row]
    for row in sorted(timed, key=lambda row: row["preset"] != HOMES[row["home"]].usual):
        own.setdefault(row["home"], row.get("processor"))
    return [
        row
        if row.get("processor") == own.get(row["home"])
        else {key: value for key, value in row.items() if key not in TIMED}
        for row in measures
    ]


def processors(measures: Sequence[dict[str, Any]]) -> str:
    """Return the processors of the rows whose speed was measured."""
    timed = [row.get("processor") for row in measures if "tokens_per_second" in row]
    known = "; ".join(sorted({name for name in timed if name}))
    return known + ("; of some rows not recorded" if known and not all(timed) else "") or "not recorded"


def section(table: Table, finished: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]], maps: str) -> str:
    home = HOMES[table.name]
    figures: dict[str, list[dict[str, Any]]] = {}
    for row in [*finished, *measures]:
        if row["home"] == table.name:
            figures.setdefault(row["preset"], []).append(row)
    width = home.widths[-1].rpartition(".")[2]
    seeds = sorted({seed["seed"] for row in table.rows for seed in row.seeds}) or [SEEDS[0]]
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
        command=code(command_of_home(home)),
        seeds=str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
        captions=CAPTIONS,
        finished=len(table.rows),
        refused=f"; the model refuses {len(table.refused)}" if table.refused else "",
        all=len(home.only or presets()),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
        maps=maps,
    )


def cells(table: Table, row: Row, figures: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the cells of an attention's row."""
    home = HOMES[table.name]
    usual = next((other for other in table.rows if other.preset == home.usual), None)
    difference = table.differences.get(row.preset)
    if usual is None or difference is None:
        compared = ["usual" if row is usual else "–", "", ""]
    else:
        bounds = f"{difference.low:+.1f} to {difference.high:+.1f}"
        verdict = judged(row, usual, difference)
        compared = [minus(f"{difference.value:+.1f}"), minus(bounds), verdict and f"**{verdict}**"]
    size = row.seeds[0]["parameters"]
    given = {key: [value[key] for value in figures[row.preset] if value.get(key) is not None] for key, *_ in COLUMNS}
    return [
        literal(row.preset) + ("¹" if len(row.seeds) < len(SEEDS) else ""),
        str(len(row.seeds)),
        spread(row.scores, 1, ".1f"),
        *compared,
        *(
            spread(given[key], unit, form) + ("²" if key == "aer" and 0 < len(given[key]) < len(row.seeds) else "")
            for key, _, unit, form in COLUMNS
        ),
        f"{size / 1e6:.3f}",
        minus(f"{100 * (size / usual.seeds[0]['parameters'] - 1):+.2f} %") if usual else "–",
        str(row.seeds[0]["width"]),
    ]


def spread(values: Sequence[float], unit: float, form: str) -> str:
    """Return the mean, with the standard deviation of several values."""
    if not values:
        return "–"
    text = format(fmean(values) / unit, form)
    return f"{text} ± {format(stdev(values) / unit, form)}" if len(values) > 1 else text


def minus(text: str) -> str:
    return text.replace("-", "−")
