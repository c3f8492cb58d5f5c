"""Write docs/benchmarks/attention.md and its plots: `python -m scripts.benchmarks.write_benchmark_page`.

It reads the figures of `scripts/benchmarks/attention.py` and `scripts/benchmarks/attention_layers.py`.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from scripts.benchmarks.figures_file import commit_text, read_figures, shown
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.markdown import code, literal

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
NAMES = ("local", "atrous", "sparse")
K = 32
# Targets for forward and backward: pattern, k, causal, positions; the required ratio and the desired one.
TARGETS = [
    ("local", 32, False, 2048, 10, 16), ("atrous", 32, False, 2048, 16, 24), ("sparse", 32, False, 2048, 7, 10),
    ("local", 32, False, 4096, 20, 30), ("atrous", 32, False, 4096, 20, 27), ("sparse", 32, False, 4096, 10, 14),
    ("sparse", 64, False, 8192, 15, 20),
    ("local", 32, True, 4096, 15, 22), ("atrous", 32, True, 4096, 10, 16), ("sparse", 32, True, 4096, 5.5, 9),
]  # fmt: skip
LENGTHS_OF_OTHERS = (1024, 4096, 16384)
STEEPEST = {"local": 1.15, "atrous": 1.8, "sparse": 1.4}  # largest exponents allowed
# Introductions of the sections of attention_layers.py; × is the time of the reference divided by that of the pattern.
REQUIRED = {  # × that a row of a section of attention_layers.py needs, by way; the layer's attention alone has no goal
    "layer": {"local": 2.37, "atrous": 2.37, "sparse": 2.2},
    "half_padding": 1.67,
    "ragged": 0.95,
}
LIBRARY = ("lucidrains", 4096, 1.6, 0.4)  # name, positions, least × and largest share of its memory
IN_MODELS = {
    "layer": "A Transformer layer of width 512, forward and backward, k = 32, compared with `multihead`. Required: "
    "2.37 for local and atrous, 2.2 for sparse. The attention core takes 120 of the dense layer's 197 GFLOP; if all "
    "operations ran at the same speed, no core could make the layer more than 2.6 times faster, or 5.7 times without "
    "the feed-forward layer.",
    "training": "A training step, 4 + 4 layers of width 256, two documents, k = 32, compared with `multihead`.",
    "half_padding": "A batch with padding compared with a full one, k = 32. Required: 1.67, that is, 0.6 of the time.",
    "ragged": "The core that is chosen by default, sentences × n, each sentence of n / 2 to n positions, k = 16, "
    "compared with dense attention with the same padding. Required: 0.95.",
    "parts": "A layer that the fused kernel does not support, 4 heads of 64, forward and backward: blocks compared "
    "with dense.",
}
TEXT = """\
# Sparse and dense attention, {device}, {dtype}

This page is made by `python -m scripts.benchmarks.write_benchmark_page` from the figures next to it, which are
measured by `python -m scripts.benchmarks.attention` and `python -m scripts.benchmarks.attention_layers`. torch
{torch}, batch {batch}, {heads} heads of {width}. Unless stated otherwise, only the core softmax(Q Kᵀ) V is measured.
All implementations of a case took turns in one process, and the fastest turn of each counts. **×** is the time of
`F.scaled_dot_product_attention` over all pairs (causal, if the pattern is) divided by the time of the implementation:
above 1 is faster. Memory is the peak allocation beyond the inputs, in units of the query tensor (q). What is *required*
or *desired* are goals that we set before the work.

Arguments for the core: {arguments}{note} {machine}
"""
LINES: dict[str, dict[str, Any]] = {
    "full": {"color": "black", "linestyle": "-", "marker": "o"},
    "masked": {"color": "black", "linestyle": ":", "marker": "x"},
    "lucidrains": {"color": "0.45", "linestyle": "--", "marker": "^"},
    "sparse": {"color": "tab:red", "linestyle": "-", "marker": "s"},
    "atrous": {"color": "tab:green", "linestyle": "-.", "marker": "D"},
    "local": {"color": "tab:blue", "linestyle": "--", "marker": "v"},
}


class Run(NamedTuple):
    """A measured run of the core; `ratio` is the time of full attention in the same case divided by its own."""

    way: str
    pattern: str
    k: int
    both: bool
    causal: bool
    threads: int
    length: int
    seconds: float
    memory: float | None
    ratio: float = math.nan

    @property
    def case(self) -> tuple[Any, ...]:
        return self.both, self.causal, self.threads, self.length

    @property
    def name(self) -> str:
        pattern = f"{self.pattern} {self.k}" if self.pattern else ""
        return pattern if self.way == "blocks" else f"{self.way} {pattern}".strip()


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--figures", default="attention_cpu_float32.json")
    options = parser.parse_args()
    about, rows = read(options.folder / options.figures)
    runs = [Run(*row) for row in rows]
    dense = {run.case: run.seconds for run in runs if run.way == "full"}
    runs = [run._replace(ratio=dense.get(run.case, math.nan) / run.seconds) for run in runs]
    machine = f"The core: {origin(about)}."
    text = TEXT.format(**shown({"note": "."} | about) | {"arguments": code(about["arguments"]), "machine": machine})
    layers = options.folder / "attention_layers.json"
    about_layers, figures = read(layers) if layers.exists() else ({}, [])
    lines = [text, *glance(runs), *others_at_a_glance(runs, figures), *growth(runs), *memory(runs)]
    if figures:
        lines += in_models(about_layers, figures)
    lines += [*drawn(runs, options.folder), *dispatch(runs), *libraries(runs), *by_length(runs)]
    page = options.folder / "attention.md"
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print(f"wrote {page}")


def read(file: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    content = read_figures(file, "figures")
    names = [[literal(cell) if isinstance(cell, str) else cell for cell in row] for row in content["figures"]]
    return content["about"], names


def origin(about: dict[str, Any]) -> str:
    """Return the processor and the commit of figures, or that they were not recorded."""
    processor = about.get("processor")
    return f"processor {literal(processor) if processor else 'not recorded'}, {commit_text([about.get('commit')])}"


def where(runs: Iterable[Run], **wanted: Any) -> list[Run]:
    return [run for run in runs if all(getattr(run, name) == value for name, value in wanted.items())]


def table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "--:|" * len(head)
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)
    yield ""


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def verdict(value: float, least: float, hoped: float = math.inf) -> str:
    if math.isnan(value + least):
        return "–"
    if value < least:
        return "no"
    return "yes" if value < hoped else "**more**"


def side(causal: bool) -> str:
    return "causal" if causal else "both sides"


def glance(runs: list[Run]) -> Iterator[str]:
    threads = sorted({run.threads for run in runs}, reverse=True)
    yield "## At a glance\n"
    yield "Forward and backward, with the required and the desired ratio. The verdict is for the most threads.\n"
    rows = []
    for pattern, k, causal, length, least, hoped in TARGETS:
        of = where(runs, way="blocks", pattern=pattern, k=k, causal=causal, length=length, both=True)
        ratios = [next((run.ratio for run in of if run.threads == t), math.nan) for t in threads]
        met = verdict(ratios[0], least, hoped)
        rows.append((f"{pattern}, k = {k}, {side(causal)}", length, f"{least}, {hoped}", *map(number, ratios), met))
    yield from table(
        ("pattern", "positions", "required and desired, ×", *(f"×, threads: {t}" for t in threads), "met"), rows
    )


def others_at_a_glance(runs: list[Run], figures: list[list[Any]]) -> Iterator[str]:
    """Yield how many cases of the other goals are met, whose tables are below."""
    counted = []
    for section, title in (("half_padding", "a batch with padding"), ("ragged", "the core chosen by default")):
        met = [verdict(ratio, required(section, case, way)) for case, way, ratio in speedups(section, figures)]
        if met:
            counted.append(f"{title}: {met.count('no')} of {len(met)}")
    met = [row[-1] for row in library_rows(runs) if row[-1] in ("yes", "no")]
    if met:
        counted.append(f"{LIBRARY[0]}' local-attention at {LIBRARY[1]} positions: {met.count('no')} of {len(met)}")
    if counted:
        yield f"Cases that miss the other goals, whose tables are below: {'; '.join(counted)}.\n"


def speedups(section: str, figures: list[list[Any]]) -> list[tuple[str, str, float]]:
    """Return the cases, ways and ratios of a section of attention_layers.py."""
    return [(case, way, dense / seconds) for name, case, way, seconds, dense in figures if name == section]


def required(section: str, case: str, way: str) -> float:
    """Return the least ratio that is a goal; NaN where there is none."""
    if case.endswith("alone"):
        return math.nan
    least = REQUIRED.get(section, math.nan)
    return least.get(way, math.nan) if isinstance(least, dict) else least


def growth(runs: list[Run]) -> Iterator[str]:
    yield "Forward and backward from 1024 to 8192 positions: the time grows with the length to the power of\n"
    most = max(run.threads for run in runs)
    rows = []
    for name in ("full", *NAMES):
        wanted = {"way": "full"} if name == "full" else {"way": "blocks", "pattern": name, "k": K}
        slopes = [exponent(where(runs, **wanted, both=True, threads=most, causal=causal)) for causal in (False, True)]
        asked = STEEPEST.get(name, math.nan)
        rows.append((name, number(asked, 2), *(number(s, 2) for s in slopes), verdict(-max(slopes), -asked)))
    yield from table(("way", "required, at most", "both sides", "causal", "met"), rows)


def exponent(runs: list[Run]) -> float:
    """Return the slope of log time over log length; NaN for fewer than two lengths."""
    points = [(math.log(run.length), math.log(run.seconds)) for run in runs if 1024 <= run.length <= 8192]
    return linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else math.nan


def memory(runs: list[Run]) -> Iterator[str]:
    weighed = [run for run in runs if run.memory is not None]
    if not weighed:
        return
    yield "Memory in q. Required: at most 1.25 forward, and no more than full attention forward and backward.\n"
    cases = sorted({(run.both, run.causal, run.length) for run in weighed})
    memories = {(run.name, run.both, run.causal, run.length): run.memory for run in weighed}
    head = [f"{'both passes' if b else 'forward'}{', causal' if c else ''}, {n}" for b, c, n in cases]
    names = dict.fromkeys(run.name for run in weighed)
    yield from table(
        ("way", *head), ((name, *(number(memories.get((name, *case)), 2) for case in cases)) for name in names)
    )


def in_models(about: dict[str, Any], figures: list[list[Any]]) -> Iterator[str]:
    """Yield a table for each section, with a row for each case and a column for each way."""
    yield f"## In models and batches, threads: {about['threads']}\n"
    yield f"{sentence(origin(about))}.\n"
    for section, text in IN_MODELS.items():
        ratios = {(case, way): ratio for case, way, ratio in speedups(section, figures)}
        if ratios:
            yield f"{text}\n"
            cases, ways = (list(dict.fromkeys(names)) for names in zip(*ratios, strict=True))
            digits = 3 if section in ("half_padding", "ragged") else 2  # their goals have two
            rows = [[case, *(number(ratios[case, way], digits) for way in ways)] for case in cases]
            head = ["case", *(f"{way}, ×" for way in ways)]
            if section in REQUIRED:
                head.append("met")
                for row in rows:
                    row.append(all_met(verdict(ratios[row[0], way], required(section, row[0], way)) for way in ways))
            yield from table(head, rows)


def all_met(verdicts: Iterable[str]) -> str:
    """Return the verdict of a row: `no` if one of its cells is, `–` if none has a goal."""
    found = set(verdicts)
    return next((one for one in ("no", "yes") if one in found), "–")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def dispatch(runs: list[Run]) -> Iterator[str]:
    """Yield the choices of the patterns: blocks, except for cases in which `automatic` was measured."""
    chosen = {(run.pattern, run.k, *run.case): run for run in where(runs, way="blocks")}
    chosen |= {(run.pattern, run.k, *run.case): run for run in where(runs, way="automatic")}
    yield "## The default choice of a pattern\n"
    yield "The smallest × over k, causality, threads and passes; required: 0.95. Shorter sequences use a mask.\n"
    rows = []
    for length in sorted({run.length for run in chosen.values()}):
        of = [where(chosen.values(), length=length, pattern=name) for name in NAMES]
        least = [min((run.ratio for run in some), default=math.nan) for some in of]
        rows.append((length, *(number(ratio, 3) for ratio in least), verdict(min(least), 0.95)))
    yield from table(("positions", *NAMES, "met"), rows)
    yield "Lengths from which blocks are chosen, and from which they are always the fastest (full, masked or blocks):\n"
    yield from table(("pattern", "k", "chosen from", "fastest from"), thresholds(runs))


def thresholds(runs: list[Run]) -> Iterator[tuple[Any, ...]]:
    lengths = sorted({run.length for run in runs})
    dense: dict[Any, float] = {}
    for run in runs:
        if run.way in ("full", "masked"):
            dense[run.case] = min(run.seconds, dense.get(run.case, math.inf))
    for pattern, k in dict.fromkeys((run.pattern, run.k) for run in where(runs, way="blocks")):
        of = where(runs, pattern=pattern, k=k)
        others = max((run.length for run in where(of, way="automatic")), default=0)
        slower = max((r.length for r in where(of, way="blocks") if r.seconds > dense[r.case]), default=0)
        yield pattern, k, *(next((n for n in lengths if n > last), "–") for last in (others, slower))


def libraries(runs: list[Run]) -> Iterator[str]:
    most = max(run.threads for run in runs)
    name, length, least, share = LIBRARY
    yield "## Other libraries\n"
    yield f"k = {K}, threads: {most}; × is their time divided by ours. Required, compared with local-attention by"
    yield f"{name} at {length} positions: at least {least}, with at most {share} of its memory.\n"
    head = ("library", "pattern", "side", "passes", "positions", "×", "memory, ours / theirs", "met")
    yield from table(head, library_rows(runs))


def library_rows(runs: list[Run]) -> list[tuple[Any, ...]]:
    """Return the rows of the other libraries, with a verdict where there is a goal."""
    most = max(run.threads for run in runs)
    ours = {(run.pattern, *run.case): run for run in where(runs, way="blocks", k=K)}
    rows = []
    for run in where(runs, threads=most):
        our_run = ours.get((run.pattern, *run.case))
        if run.way in ("lucidrains", "flex") and run.length in LENGTHS_OF_OTHERS and our_run is not None:
            share = our_run.memory / run.memory if our_run.memory and run.memory else math.nan
            passes = "both passes" if run.both else "forward"
            ratio = run.seconds / our_run.seconds
            met = "–"
            if (run.way, run.length) == LIBRARY[:2]:
                met = all_met([verdict(ratio, LIBRARY[2]), verdict(-share, -LIBRARY[3])])
            shown_ratios = number(ratio), number(share, 2)
            rows.append((run.way, run.pattern, side(run.causal), passes, run.length, *shown_ratios, met))
    return rows


def by_length(runs: list[Run]) -> Iterator[str]:
    """Yield the tables of all lengths that are powers of two."""
    shown = [run for run in runs if run.length & (run.length - 1) == 0 and run.way not in ("automatic", "flex")]
    for both, causal, threads in itertools.product((True, False), (False, True), (2, 1)):
        of = where(shown, both=both, causal=causal, threads=threads)
        if not of:
            continue
        yield f"## {'Forward and backward' if both else 'Forward'}, {side(causal)}, threads: {threads}\n"
        names = [name for name in dict.fromkeys(run.name for run in of) if name != "full"]
        run_by_key = {(run.name, run.length): run for run in of}
        rows = []
        for n in sorted({run.length for run in of}):
            cells = [run_by_key.get((name, n)) for name in names]
            ratios = (number(run.ratio) if run else "–" for run in cells)
            rows.append((n, number(run_by_key["full", n].seconds * 1e3, 2), *ratios))
        yield from table(("positions", "full, ms", *(f"{name}, ×" for name in names)), rows)


def drawn(runs: list[Run], folder: Path) -> Iterator[str]:
    """Yield a plot of forward and backward, causal and not, with the largest number of threads."""
    most = max(run.threads for run in runs)
    for causal in sorted({run.causal for run in runs}):
        of = where(runs, causal=causal, both=True, threads=most)
        figure = Figure(figsize=(7, 5), layout="constrained")
        axes = figure.subplots()
        for name, style in LINES.items():
            wanted = {"way": "blocks", "pattern": name, "k": K} if name in NAMES else {"way": name}
            line = where(of, **wanted)
            if line:
                label = f"{name}, k = {K}" if line[0].k else name
                axes.plot([r.length for r in line], [r.seconds * 1e3 for r in line], label=label, **style)
        axes.set(xscale="log", yscale="log", xlabel="positions", ylabel="forward and backward, ms", title=side(causal))
        axes.xaxis.set_major_locator(FixedLocator([n for n in {r.length for r in of} if n & (n - 1) == 0]))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(color="0.9")
        axes.legend(handlelength=4)
        file = f"attention_{side(causal).replace(' ', '_')}.png"
        figure.savefig(folder / file, dpi=110)
        yield f"![Time against length, {side(causal)}, {most} threads]({file})\n"


if __name__ == "__main__":
    main()
