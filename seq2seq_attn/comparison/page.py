"""The comparison as one self-contained HTML page, and its tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from seq2seq_attn.alignment.page import digest
from seq2seq_attn.comparison.draw import forest, panels, scatter
from seq2seq_attn.comparison.figures import Figures, about_test, cells_of, counted, head_of, listed, shown, verdict
from seq2seq_attn.comparison.maps import KINDS, draw_map, draw_scale, maps_of
from seq2seq_attn.comparison.read import LeftOut
from seq2seq_attn.files import check_is_ours
from seq2seq_attn.markdown import literal

STYLE = Path(__file__).with_name("page.css")
# The browser refuses to load anything else.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; img-src data:"
SORT = """\
for (const head of document.querySelectorAll("table.sortable thead th")) head.onclick = () => {
  const table = head.closest("table"), rows = [...table.tBodies[0].rows], old = head.ariaSort;
  const value = row => row.cells[head.cellIndex].dataset.value ?? "", text = isNaN(value(rows[0]));
  const down = text ? old === "ascending" : old !== "descending";
  const compare = (a, b) => value(a) === "" || value(b) === "" ? (value(a) === "") - (value(b) === "")
    : (text ? value(a).localeCompare(value(b)) : value(a) - value(b)) * (down ? -1 : 1);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.ariaSort = down ? "descending" : "ascending";
  table.tBodies[0].append(...rows.sort(compare));
};
"""
MADE_BY = '<p class="note">Made by <code>'
LAST_LINE = "± is the standard deviation over seeds. With plots, curves and maps: "  # of the Markdown
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
{made_by}
<script>
{script}</script>
</body>
</html>
"""
OF_RUNS = (
    f"{MADE_BY}seq2seq-attn compare runs</code> from the folders of the runs alone. ± is the\nstandard deviation over "
    "seeds.</p>"
)
COSTS = ("num_parameters", "decode_sentences_per_second", "attention_entropy")


def html_page(groups: Sequence[Figures], left_out: Sequence[LeftOut], sentence: int) -> str:
    """Return the page of all groups; `sentence` counts from 0 the sentences that have maps."""
    runs = sum(len(row.runs) for group in groups for row in group.rows)
    body = [f"<p>{counted(runs, 'run')} of train.py: {', '.join(described(group) for group in groups)}.</p>"]
    body += left_out_list(left_out)
    for number, group in enumerate(groups):
        body += section(group, number, sentence)
    return PAGE.format(
        title=title_of(groups),
        policy=POLICY.format(script=digest(f"\n{SORT}")),
        made_by=OF_RUNS,
        style=STYLE.read_text(encoding="utf-8"),
        body="\n".join(body),
        script=SORT,
    )


def check_page(page: Path) -> None:
    """Refuse to replace a page that no comparison has written."""
    check_is_ours(page, MADE_BY, "a page of seq2seq-attn compare")


def described(group: Figures) -> str:
    return f"{counted(len(group.rows), group.by)} in {escape(group.title)}"


def left_out_list(left_out: Sequence[LeftOut]) -> Iterator[str]:
    if left_out:
        yield f"<details open><summary>{counted(len(left_out), 'run')} left out</summary>"
        yield '<ul class="warnings">'
        yield from (f"<li><b>{escape(name)}</b>: {escape(reason)}</li>" for name, reason in left_out)
        yield "</ul></details>"


def section(figures: Figures, number: int, sentence: int) -> Iterator[str]:
    yield f"<section><h2>{escape(figures.title)}</h2>"
    yield from bullets(verdict(figures), "verdict")
    if figures.notes:
        yield from bullets(figures.notes, "warnings")
    yield from overview(figures)
    yield "<h3>All figures</h3>"
    yield note("The best of a column is underlined. A click on a head sorts.")
    yield from figure_table(figures)
    plots = [boxed(scatter(figures, key)) for key in COSTS if worth_a_plot(figures, key)]
    if plots:
        yield f"<h3>{escape(figures.score)} against size, decoding and entropy</h3>"
        yield note(
            f"Black: no other has more {figures.score} for as few parameters, or as fast. Entropy is that of the "
            "weights of a target token over the source, mean of layers and heads, in nats: at 0 it looks at one token "
            "alone."
        )
        yield f'<div class="pair">{"".join(plots)}</div>'
    yield from curves(figures, number)
    yield from length_table(figures)
    for kind, title in KINDS.items():
        yield from maps(figures, kind, title, sentence)
    yield from run_table(figures)
    yield "</section>"


def worth_a_plot(figures: Figures, key: str) -> bool:
    """Return whether a plot has two points that the table tells apart; models of one size need no plot against it."""
    if key not in figures.columns:
        return False
    named = (key,) if key == "num_parameters" else (key, next(iter(figures.columns)))
    points = {tuple(shown(figures.mean(row, name), figures.columns[name]) for name in named) for row in figures.rows}
    return len({point for point in points if all(map(math.isfinite, point))}) > 1


def overview(figures: Figures) -> Iterator[str]:
    """Yield the differences from the baseline and the score against speed, side by side where there is room."""
    yield '<div class="pair">'
    if figures.differences:
        yield f"<div><h3>Difference from the baseline</h3>{note(about_test(figures))}"
        yield f"{boxed(forest(figures), 'narrow')}</div>"
    if worth_a_plot(figures, "tokens_per_second") and figures.columns["tokens_per_second"].best:
        yield f"<div><h3>{escape(figures.score)} against speed of training</h3>"
        yield note(f"Black: no other trains as fast with more {figures.score}. Lines: standard deviation over seeds.")
        yield f"{boxed(scatter(figures, 'tokens_per_second'))}</div>"
    yield "</div>"


def bullets(lines: Iterable[str], style: str) -> Iterator[str]:
    yield f'<ul class="{style}">'
    yield from (f"<li>{escape(line)}</li>" for line in lines)
    yield "</ul>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def boxed(content: str, width: str = "wide") -> str:
    """Return a box that scrolls where the screen is narrower."""
    return f'<div class="box {width}" tabindex="0">{content}</div>'


def named(label: str) -> str:
    """Return a name that may break after each of its words."""
    return escape(label).replace("_", "_<wbr>")


def figure_table(figures: Figures) -> Iterator[str]:
    yield table_head(head_of(figures))
    for row in figures.rows:
        yield '<tr class="baseline">' if row.label == figures.baseline else "<tr>"
        yield row_head(row.label)
        for text, value, best in cells_of(figures, row):
            data = "" if math.isnan(value) else f' data-value="{value:g}"'
            style = ' class="best"' if best else ""
            yield f"<td{style}{data}>{escape(text)}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def table_head(titles: Iterable[str]) -> str:
    heads = "".join(f'<th scope="col"><button>{named(title)}</button></th>' for title in titles)
    return f'<div class="box" tabindex="0"><table class="sortable"><thead><tr>{heads}</tr></thead><tbody>'


def row_head(label: str) -> str:
    return f'<th scope="row" data-value="{escape(label)}">{named(label)}</th>'


def curves(figures: Figures, number: int) -> Iterator[str]:
    """Yield the curves of the validation score, and folded those of the loss, in which attentions differ less."""
    yield "<h3>Learning curves</h3>"
    yield note(f"Black: this {figures.by}, a line for each seed. Grey: all others.")
    scores, losses = (
        {row.label: [run.curve(key) for run in row.runs] for row in figures.rows}
        for key in (f"val/{figures.metric}", "train/loss")
    )
    yield from small_plots(panels(scores, f"validation {figures.score}", f"score-{number}"))
    yield "<details><summary>Training loss, nats a token</summary>"
    yield from small_plots(panels(losses, "training loss", f"loss-{number}"))
    yield "</details>"


def small_plots(drawn: dict[str, str]) -> Iterator[str]:
    if not drawn:
        yield note("No run has two of them in metrics.csv.")
    yield '<div class="panels">'
    for label, plot in drawn.items():
        yield f"<figure>{plot}<figcaption>{named(label)}</figcaption></figure>"
    yield "</div>"


def length_table(figures: Figures) -> Iterator[str]:
    yield f"<h3>{escape(figures.score)} by sentence length</h3>"
    yield note("By words of the source; mean over seeds. The darker, the lower.")
    heads = [f"{words} words ({counted(number, 'sentence')})" for words, number in figures.lengths.items()]
    yield table_head([figures.by, *heads])
    highest = max((score for scores in figures.by_length.values() for score in scores.values()), default=0) or 1.0
    for row in figures.rows:
        yield f"<tr>{row_head(row.label)}"
        for score in figures.by_length[row.label].values():
            grey = f"{255 - 110 * (1 - score / highest):.0f}"
            yield f'<td data-value="{score:g}" style="background:rgb({grey},{grey},{grey})">{score:.1f}</td>'
        yield "</tr>"
    yield "</tbody></table></div>"


def maps(figures: Figures, kind: str, title: str, sentence: int) -> Iterator[str]:
    by_label, others = maps_of(figures.rows, kind, sentence)
    if not by_label:
        return
    yield f"<h3>{title}: one sentence in every run</h3>"
    if text := next((one.sentence for one in by_label.values() if one.sentence), None):
        yield f"<p><q>{escape(text)}</q></p>"
    yield note(
        "The last layer, mean over heads, of the first seed, at the validation that chose its checkpoint. A row is a "
        "token that looks, a column one that is looked at. Grey is exactly 0, where a pattern, a mask or a normalizer "
        "lets nothing through."
    )
    if others:
        yield note(f"Not drawn, since their maps are of other sentences: {listed(others)}.")
    yield f'<div class="key">{draw_scale(f"{figures.title}, {kind}")}</div><div class="maps">'
    for label, one in by_label.items():
        about = f"<span>layer {one.layer}, {counted(one.heads, 'head')}</span>"
        drawn = draw_map(one.weights, one.rows, one.columns, f"{figures.title}, {kind}: weights of {label}")
        yield f"<figure><figcaption>{named(label)} {about}</figcaption>{drawn}</figure>"
    yield "</div>"


def run_table(figures: Figures) -> Iterator[str]:
    heads = ("run", figures.by, "seed", "updates", "minutes of training", "torch", "threads", "commit")
    yield f"<details><summary>Runs</summary>{table_head(heads)}"
    for row in figures.rows:
        for run in row.runs:
            seconds, origin = run.results.get("train_seconds"), run.provenance
            minutes = f"{seconds / 60:.1f}" if isinstance(seconds, int | float) else "–"
            cells = (
                row.label,
                run.seed,
                run.results.get("steps", "–"),
                minutes,
                origin.get("versions", {}).get("torch", "–"),
                origin.get("threads", "–"),
                str(origin.get("commit") or "–")[:8],
            )
            shown = "".join(f'<td data-value="{escape(str(cell))}">{escape(str(cell))}</td>' for cell in cells)
            yield f"<tr>{row_head(run.name)}{shown}</tr>"
    yield "</tbody></table></div></details>"


def markdown_page(groups: Sequence[Figures], left_out: Sequence[LeftOut], page: str) -> str:
    """Return the table of each group with its notes; `page` is the name of the HTML file."""
    lines = [f"# {title_of(groups)}", ""]
    for figures in groups:
        lines += [f"## {literal(figures.title)}", "", *(f"- {literal(line)}" for line in verdict(figures)), ""]
        head = [literal(title) for title in head_of(figures)]
        lines += [f"| {' | '.join(head)} |", f"|:--|{'--:|' * (len(head) - 1)}"]
        for row in figures.rows:
            texts = ((literal(cell.text), cell.best) for cell in cells_of(figures, row))
            cells = [literal(row.label), *(f"**{text}**" if best else text for text, best in texts)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *([literal(about_test(figures)), ""] if figures.differences else [])]
        lines += [*(f"- {literal(note)}" for note in figures.notes), ""]
    if left_out:
        lines += ["## Left out", "", *(f"- {literal(f'{name}: {reason}')}" for name, reason in left_out), ""]
    link = f"[{literal(page)}]({quote(page)})"
    lines.append(f"{LAST_LINE}{link}.")
    return "\n".join(lines) + "\n"


def title_of(groups: Sequence[Figures]) -> str:
    return "Attentions compared" if all(group.by == "attention" for group in groups) else "Runs compared"
