"""The runs of `homes.py` as one HTML page: sortable tables, differences, curves and maps of every attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from scripts.benchmarks.home_runs import CAPTIONS, EPOCHS, HOMES, SEEDS, command_of_home
from scripts.benchmarks.home_tables import METRIC, Row, Table, judged
from seq2seq_attn.alignment.page import digest
from seq2seq_attn.comparison.draw import STYLE as DRAWN
from seq2seq_attn.comparison.draw import forest, panels, scatter
from seq2seq_attn.comparison.figures import Column, Figures, counted, listed, means_of
from seq2seq_attn.comparison.maps import draw_map, draw_scale
from seq2seq_attn.comparison.page import (
    MADE_BY,
    PAGE,
    POLICY,
    SORT,
    STYLE,
    boxed,
    bullets,
    figure_table,
    note,
    row_head,
    small_plots,
    table_head,
)
from seq2seq_attn.comparison.read import Run
from seq2seq_attn.comparison.rows import Row as ComparedRow
from seq2seq_attn.comparison.system import System
from seq2seq_attn.files import check_is_ours

TITLE = "Attentions in their homes"
SCORE, CURVE = "test/bleu", "val/bleu"
COLUMNS = {  # by the key of a row or a measurement; no best one is marked, as rows of one seed are among them
    SCORE: Column("BLEU", 1),
    "chrf": Column("chrF", 1),
    "loss": Column("loss, nats", 3),
    "entropy": Column("entropy, nats", 2),
    "aer": Column("AER, %", 1),
    "tokens_per_second": Column("training, tokens/s", 0),
    "peak_memory_bytes": Column("memory, MB", 0, 1e6),
    "decode_sentences_per_second": Column("decoding, sentences/s", 0),
    "parameters": Column("parameters, M", 3, 1e6),
    "width": Column("width", 0),
}
RULES = (
    "A home is a place of a model that takes an attention. The models of a home have one size, for which a width is "
    f"chosen, and are trained on {CAPTIONS:,} captions of Multi30k, English to French, for {EPOCHS} epochs of one "
    "schedule. BLEU is that of test_2016_flickr with greedy search. No learning rate was tuned for an attention.",
    f"Only attentions with {len(SEEDS)} seeds are judged. Better or worse than the usual attention (filled points, *): "
    "the difference is significant over sentences (paired bootstrap, p < 0.05 after Holm's correction), and all seeds "
    "of the one are above all seeds of the other.",
    "¹ The attention has fewer seeds: the spread between seeds is unknown, and it is neither better nor worse than "
    "another.",
    "± is the standard deviation over seeds; 95 % is the interval over resampled test sets of the mean over seeds. "
    "Entropy, AER and the maps are those of the attention to the source; in the home of self-attention the maps are "
    "those of the encoder. Speed and memory were measured on one thread with nothing else on the machine.",
)


class Place(NamedTuple):
    """What the page shows of a home: its table, its figures as `seq2seq-attn compare` draws them, its maps."""

    table: Table
    figures: Figures
    maps: dict[str, dict[str, Any]]


def write_html(tables: Sequence[Table], measures: Sequence[dict[str, Any]], resamples: int, page: Path) -> None:
    """Write the page of the homes that have more than one run.

    Args:
        measures: without the speed and memory of other processors than that of the usual attention.

    Raises:
        UserError: if the file exists and is not such a page.
    """
    made_by = f"{MADE_BY}python -m scripts.benchmarks.homes page</code>.</p>"
    check_is_ours(page, MADE_BY, "a page of seq2seq-attn")
    places = [place_of(table, measures, resamples) for table in tables if table.differences]
    page.parent.mkdir(parents=True, exist_ok=True)
    body = list(bullets(RULES, "note"))
    with matplotlib.rc_context(DRAWN):
        for number, place in enumerate(places):
            body += section(place, number)
    text = PAGE.format(
        title=TITLE,
        policy=POLICY.format(script=digest(f"\n{SORT}")),
        made_by=made_by,
        style=STYLE.read_text(encoding="utf-8"),
        body="\n".join(body),
        script=SORT,
    )
    page.write_text(text, encoding="utf-8")


def place_of(table: Table, measures: Sequence[dict[str, Any]], resamples: int) -> Place:
    own = [row for row in measures if row["home"] == table.name]
    usual = next(row for row in table.rows if row.preset == HOMES[table.name].usual)
    labels = {row.preset: row.preset + ("¹" if len(row.seeds) < len(SEEDS) else "") for row in table.rows}
    rows = [ComparedRow(labels[row.preset], row.preset, list(runs_of(row, own))) for row in table.rows]
    means = {row.label: means_of(row, COLUMNS) for row in rows}
    differences = {
        labels[row.preset]: difference._replace(significant=bool(judged(row, usual, difference)))
        for row in table.rows
        if (difference := table.differences.get(row.preset)) is not None
    }
    figures = Figures(
        title=HOMES[table.name].title,
        rows=rows,
        by="attention",
        columns={key: column for key, column in COLUMNS.items() if any(key in of_row for of_row in means.values())},
        means=means,
        baseline=labels[usual.preset],
        chosen=True,
        differences=differences,
        resamples=resamples,
        lengths={},
        by_length={},
        notes=[],
    )
    return Place(table, figures, {row["preset"]: row["map"] for row in own if row.get("map") is not None})


def runs_of(row: Row, measures: Iterable[dict[str, Any]]) -> Iterator[Run]:
    """Yield the runs of an attention as their rows and measures keep them; the folders need not exist."""
    measured = {one["seed"]: one for one in measures if one["preset"] == row.preset}
    for seed in row.seeds:
        results = {**seed, **measured.get(seed["seed"], {}), SCORE: seed["bleu"]}
        log = [{"step": updates - 1.0, CURVE: score} for updates, score in seed["curve"]]
        yield Run(
            name=seed["folder"],
            given=seed["folder"],
            folder=Path(seed["folder"]),
            results=results,
            config={},
            provenance={"commit": seed["commit"]},
            log=log,
            metric="bleu",
            scorer=METRIC,
            stage="test",
            system=System(seed["folder"], [], [], [], {}, None),
            memory_is_bound=False,
        )


def section(place: Place, number: int) -> Iterator[str]:
    table, figures, maps = place
    yield f"<section><h2>{escape(figures.title)}</h2>"
    yield f"<p><code>{escape(command_of_home(HOMES[table.name]))}</code></p>"
    yield from bullets(verdicts(place), "verdict")
    if table.refused:
        yield from bullets([f"{preset} is not taken: {reason}" for preset, reason in table.refused.items()], "warnings")
    yield '<div class="pair">'
    yield f"<div><h3>Difference from {escape(figures.baseline)}</h3>{boxed(forest(figures), 'narrow')}</div>"
    if "tokens_per_second" in figures.columns:
        yield f"<div><h3>BLEU against speed of training</h3>{note('Lines: standard deviation over seeds.')}"
        yield f"{boxed(scatter(figures, 'tokens_per_second'))}</div>"
    yield "</div><h3>All figures</h3>"
    yield note("A click on a head sorts.")
    yield from figure_table(figures)
    yield "<h3>Learning curves</h3>"
    yield note("Validation BLEU of 256 sentences. Black: this attention, a line for each seed. Grey: all others.")
    curves = {row.label: [run.curve(CURVE) for run in row.runs] for row in figures.rows}
    yield from small_plots(panels(curves, "validation BLEU", f"score-{number}"))
    if maps:
        yield "<h3>One sentence in every run</h3>"
        yield note(
            "The last layer, mean over heads, of the first seed, along a given translation. Rows are queries, columns "
            "are keys. Grey is less than 0.005."
        )
        yield f'<div class="key">{draw_scale(figures.title)}</div><div class="maps">'
        for preset in (row.preset for row in table.rows if row.preset in maps):
            one = maps[preset]
            drawn = draw_map(np.array(one["weights"]), one["rows"], one["columns"], f"{figures.title}: {preset}")
            yield f"<figure><figcaption>{escape(preset)}</figcaption>{drawn}</figure>"
        yield "</div>"
    yield from run_table(figures)
    yield "</section>"


def verdicts(place: Place) -> list[str]:
    """Return which attentions are better and worse than the usual one, and which are not told apart or not judged."""
    table, figures, _ = place
    usual = HOMES[table.name].usual
    by_verdict: dict[str, list[str]] = {"better": [], "worse": [], "": []}
    row_of_usual = next(row for row in table.rows if row.preset == usual)
    full = [row for row in table.rows if row.preset != usual and len(row.seeds) == len(SEEDS)]
    for row in full:
        by_verdict[judged(row, row_of_usual, table.differences[row.preset])].append(row.preset)
    of_usual = figures.means[figures.baseline][SCORE]
    spread = "" if of_usual.sd is None else f" ± {of_usual.sd:.1f}"
    lines = [f"Usual here: {usual}, {of_usual.mean:.1f}{spread} BLEU."]
    lines += [f"{verdict.capitalize()}: {listed(names)}." for verdict, names in by_verdict.items() if verdict and names]
    if by_verdict[""]:
        lines.append(f"Neither, with {len(SEEDS)} seeds: {listed(by_verdict[''])}.")
    fewer = len(table.rows) - len(full) - 1
    return lines + ([f"Not judged, for want of seeds: {counted(fewer, 'attention')}."] if fewer else [])


def run_table(figures: Figures) -> Iterator[str]:
    heads = ("run", "attention", "seed", "BLEU", "updates", "minutes of a processor", "commit")
    yield f"<details><summary>Runs</summary>{table_head(heads)}"
    for row in figures.rows:
        for run in row.runs:
            given = run.results
            cells = (
                row.attention,
                run.seed,
                f"{given[SCORE]:.2f}",
                given["updates"],
                given.get("processor_minutes", "–"),
                str(run.provenance["commit"])[:8],
            )
            texts = "".join(f'<td data-value="{escape(str(cell))}">{escape(str(cell))}</td>' for cell in cells)
            yield f"<tr>{row_head(run.name)}{texts}</tr>"
    yield "</tbody></table></div></details>"
