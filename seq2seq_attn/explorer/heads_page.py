"""The page of `seq2seq-attn heads`: for each kind of attention a grid of layers and heads for each figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from seq2seq_attn.alignment.page import digest
from seq2seq_attn.comparison.figures import counted
from seq2seq_attn.comparison.page import MADE_BY, PAGE, POLICY, SORT, STYLE, note, row_head, table_head
from seq2seq_attn.explorer.head_worth import Head, Measured
from seq2seq_attn.text import printable

KINDS = {
    "cross": "Attention to the source",
    "encoder": "Self-attention of the encoder",
    "self": "Self-attention of the decoder",
}
TITLES = {
    "rise": "rise of the loss",
    "entropy": "entropy, nats",
    "confidence": "confidence",
    "diagonal": "near the diagonal",
    "previous": "on the previous token",
    "sink": "on the sink",
}
MEANINGS = (
    "Entropy and confidence, the largest weight of a row, are means over rows and pairs; the others are shares of the "
    "weight: within one position of the diagonal, on the token before, and on the sink, which is the end token of the "
    "source or the begin token of the target. A head with all its weight on the end token has confidence 1; Voita et "
    "al. 2019 leave that token out."
)
CHANGES = {
    "knock_out": "one head has no effect: its context is 0",
    "uniform": "one head gives the same weight to every token that it may see",
}


def heads_page(measured: Measured, run: str) -> str:
    """Return the page of the heads of a run."""
    heads, change = measured.heads, measured.change
    what = f"{escape(printable(run))} on {counted(measured.pairs, 'pair')}"
    body = [f"<p>{what}; loss {measured.loss:.4f} nats for each target token.</p>"]
    if change is not None:
        single = [head for head in heads if head.head is not None]
        needless = sum(head.rise <= head.error for head in single)
        body.append(
            f"<p>{needless} of {counted(len(single), 'head')} can be taken out alone without a rise of the loss beyond "
            "its 95 % interval over the pairs.</p>"
        )
        body.append(
            note(
                f"The rise of the loss, in nats for each target token, when {CHANGES[change]}, and all others are as "
                "they were. The rises of two heads do not add up."
            )
        )
    body.append(note(MEANINGS))
    figures = [name for name in TITLES if name != "rise" or change is not None]
    for kind, title in KINDS.items():
        chosen = [head for head in heads if head.slot.partition("/")[0] == kind]
        if chosen:
            body += [f"<section><h2>{title}</h2>", '<div class="grids">']
            drawn = [name for name in figures if (kind, name) != ("cross", "previous")]
            body += [line for name in drawn for line in grid(chosen, name)]
            body += ["</div>", *table(chosen, drawn), "</section>"]
    return PAGE.format(
        title="Heads and what they are worth",
        policy=POLICY.format(script=digest(f"\n{SORT}")),
        style=STYLE.read_text(encoding="utf-8"),
        body="\n".join(body),
        made_by=f"{MADE_BY}seq2seq-attn heads</code>.</p>",
        script=SORT,
    )


def value(head: Head, figure: str) -> float:
    return head.rise if figure == "rise" else head.figures.get(figure, math.nan)


def grid(heads: Sequence[Head], figure: str) -> Iterator[str]:
    """Yield a table with a row for each layer and a column for each head, darker where the figure is larger."""
    slots = list(dict.fromkeys(head.slot for head in heads))
    by_place = {(head.slot, head.head): value(head, figure) for head in heads if head.head is not None}
    most = max((abs(one) for one in by_place.values() if math.isfinite(one)), default=0.0) or 1.0
    columns = range(1 + max(number for _, number in by_place if number is not None))
    yield f"<figure><figcaption>{TITLES[figure]}</figcaption>"
    yield '<div class="box" tabindex="0"><table class="grid"><thead><tr><th scope="col">layer</th>'
    yield "".join(f'<th scope="col">{number}</th>' for number in columns)
    yield "</tr></thead><tbody>"
    for slot in slots:
        yield f'<tr><th scope="row">{slot.partition("/")[2]}</th>'
        for number in columns:
            one = by_place.get((slot, number), math.nan)
            yield "<td></td>" if math.isnan(one) else cell(one, most, figure)
        yield "</tr>"
    yield "</tbody></table></div></figure>"


def cell(one: float, most: float, figure: str) -> str:
    """Return a cell, white at 0 and below and black at the largest figure of its grid."""
    shade = max(0.0, one) / most
    grey, ink = round(255 * (1 - shade)), "#fff" if shade > 0.55 else "#111"
    text = shown(one, figure)
    return f'<td style="background:rgb({grey},{grey},{grey});color:{ink}">{text}</td>'


def shown(one: float, figure: str) -> str:
    return (f"{round(one, 3) + 0.0:.3f}" if figure == "rise" else f"{one:.2f}").replace("-", "−")


def table(heads: Sequence[Head], figures: Sequence[str]) -> Iterator[str]:
    yield "<details><summary>All figures, sortable</summary>"
    titles = [TITLES[name] for name in figures]
    error = ["95 % interval, ±"] if "rise" in figures else []
    yield table_head(["head", *titles[: len(error)], *error, *titles[len(error) :]])
    for head in heads if error else [head for head in heads if head.head is not None]:
        name = f"layer {head.slot.partition('/')[2]}, {'all heads' if head.head is None else f'head {head.head}'}"
        cells = [number_cell(value(head, figure), figure) for figure in figures]
        if error:
            cells.insert(1, number_cell(head.error, "error"))
        yield f"<tr>{row_head(name)}{''.join(cells)}</tr>"
    yield "</tbody></table></div></details>"


def number_cell(one: float, figure: str) -> str:
    if math.isnan(one):
        return "<td></td>"
    text = f"{one:.4f}" if figure == "error" else f"{one:+.4f}" if figure == "rise" else f"{one:.3f}"
    return f'<td data-value="{one:g}">{text.replace("-", "−")}</td>'
