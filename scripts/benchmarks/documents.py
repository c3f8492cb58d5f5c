"""Attention on long documents: `python -m scripts.benchmarks.documents run --runs RUNS`.

Language models with different self-attention learn documents of 512 to 4,096 tokens: the modules of Python's standard
library, which is on every machine. All train for the same number of updates, of about 4,096 tokens each. The queue may
be killed at any time: the same command resumes it, and no finished run is repeated. `measure` times each training,
alone on the machine; `page` writes the page of what has finished, and `restore` lets its runs count as finished
elsewhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from scripts.benchmarks.home_runs import (
    MEASURES,
    ROOT,
    ROWS,
    commits_and_processors,
    devices,
    read_rows,
    rows_of,
    unfinished,
    write_rows,
)
from scripts.benchmarks.homes import add_restore, add_run, alone, failures, run_jobs, timed_training, trained_row
from scripts.benchmarks.processor import processor
from scripts.benchmarks.write_aligning_page import table
from seq2seq_attn.comparison.read import curve_of, read_log
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.paths import quoted

LENGTHS = (512, 1024, 2048, 4096)  # tokens of a document, about
USUAL = "multihead"
ATTENTIONS = (USUAL, "local", "atrous", "sparse", "alternating", "global_local", "lsh", "linear")
K = 32
OPTIONS = {
    **dict.fromkeys(("local", "atrous", "sparse", "global_local"), (f"attention.pattern.k={K}",)),
    "alternating": (f"attention.pattern.patterns.local.k={K}", f"attention.pattern.patterns.atrous.k={K}"),
}
SEED = 1
UPDATES = 800
INTERVAL = 50  # updates between validations
TOKENS = 4096  # of an update, about
CHARACTERS = 2.1  # of a token
SPLITS = {"val": 6, "test": 18}  # of each 25 modules, the one that a split gets
LONGEST = 30_000  # characters of a module that are read, so that no module is most of a split
LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "lib2to3", "pydoc_data", "site-packages"}  # folders
COMMON = (
    "data=text", "data/cleaning=long", "data.cleaning.max_words=10000", "data.cleaning.max_characters=10000",
    "data.cleaning.deduplicate=false", "tokenizer.vocab_size=1000", "model=lm", "model.embedding_dim=128",
    "model.decoder.dim=128", "model.decoder.num_layers=4", "feed_forward.ff_dim=512", "attention.num_heads=4",
    "label_smoothing=0", "optimizer.lr=0.002", "scheduler=inverse_sqrt", "scheduler.warmup_steps=100",
    f"batch_tokens={2 * TOKENS}", f"trainer.max_steps={UPDATES}", "trainer.max_epochs=1000",
    "trainer.check_val_every_n_epoch=null", f"trainer.val_check_interval={INTERVAL}", "num_threads=1",
    "trainer.enable_progress_bar=false",
)  # fmt: skip
BITS = "bits_per_character"
SECONDS = "seconds_per_update"
PAGE_FILE = ROOT / "docs/benchmarks/long_documents.md"
PAGE = """\
# Attention on long documents: bits per character, speed and memory

Language models learn the modules of Python's standard library, cut into documents of about n tokens, each with a
different self-attention. They have four layers of width 128, four heads and {parameters} million parameters.
`local`, `atrous`, `sparse`, `alternating` and `global_local` have k = {k}, and `lsh` has n / 32 buckets and four rounds
of hashes. Each model was trained once, for {updates} updates of {tokens:,} / n documents. With one seed, small
differences prove nothing. {finished} of {all} runs have finished.

## Bits per character of held-out modules, after equally many updates

{bits}

## Tokens per second in training, and memory

{speeds}

In brackets: times as fast as `{usual}` at that length. Measured apart, on one thread with nothing else running:
{processors}.

{memory}

Peak memory of the whole process, MB.

## Minutes to reach the validation bits of `{usual}`

{minutes}

Minutes of training after which a model has at most the validation bits that `{usual}` has at its end: the updates until
then, times the measured seconds of an update; there is a validation every {interval} updates. – is never, or measured
on another processor than `{usual}`.

![Validation bits per character by minutes of training]({name}.png)

*Validation bits per character by minutes of training, a panel for each length.*

- Modules of Python {python}.
- A line end and each four spaces of indentation are one character each; other runs of spaces become one space, and a
  remainder of one to three spaces of indentation is left out. Modules are cut off after {longest:,} characters.
- Of each 25 modules, in the order of their paths, one is for validation and one for the test. The test uses the weights
  that were best in validation.
- Commits of the runs: {commits}. Trained on {devices}.

## Commands

A run:

```
{example}
```

All runs and this page:

```
python -m scripts.benchmarks.documents run --runs RUNS
python -m scripts.benchmarks.documents measure --runs RUNS
python -m scripts.benchmarks.documents page --runs RUNS
```

The first command resumes after an interruption. The raw figures are in [{name}.json]({name}.json).
"""


class Run(NamedTuple):
    """A training with an attention on documents of a length."""

    attention: str
    length: int
    seed: int = SEED

    def folder(self, runs: Path) -> Path:
        return runs / self.attention / str(self.length)


def planned() -> list[Run]:
    """Return all runs, the longest documents last."""
    return [Run(attention, length) for length in LENGTHS for attention in ATTENTIONS]


def command(run: Run, runs: Path) -> list[str]:
    """Return the overrides of train.py for a run."""
    files = [f"data.{split}={quoted(text_file(runs, run.length, split))}" for split in ("train", *SPLITS)]
    options = OPTIONS.get(run.attention, ())
    if run.attention == "lsh":
        options = (f"attention.pattern.num_buckets={run.length // 32}",)
    documents = TOKENS // run.length
    sizes = [f"batch_sentences={documents}", f"val_sentences={16 * documents}"]
    return [*COMMON, *files, *sizes, f"attention={run.attention}", *options, f"seed={run.seed}"]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    add_run(commands, run_queue)
    measure = commands.add_parser("measure", help="time what has been trained: alone on the machine, run nothing else")
    measure.add_argument("--updates", type=int, default=30, help="training steps that are timed (%(default)s)")
    measure.set_defaults(act=measure_runs)
    page = commands.add_parser("page", help="write the page of what has been trained")
    page.add_argument("--page", type=Path, default=PAGE_FILE, help="%(default)s")
    page.set_defaults(act=write_page)
    add_restore(commands, PAGE_FILE, Run._fields)
    for choice in commands.choices.values():
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    return parser.parse_args(arguments)


def run_queue(options: argparse.Namespace) -> None:
    """Run all that have no row; those that failed get a second try."""
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        check_python(options.runs)
        write_texts(options.runs)
        failed = run_jobs(run_jobs(planned(), options, run_one), options, run_one)
    if failed:
        sys.exit(failures(failed))


def check_python(runs: Path) -> None:
    """Refuse to train beside runs of the same length that have read the modules of another Python.

    Raises:
        UserError: naming the length and both versions.
    """
    rows, here = rows_of(runs / ROWS, Run._fields), platform.python_version()
    for run in unfinished(planned(), rows):
        there = {row["python"] for row in rows if row["length"] == run.length} - {here}
        if there:
            raise UserError(
                f"{runs / ROWS} has runs of n = {run.length:,} on the modules of Python {' and '.join(sorted(there))}, "
                f"and this is Python {here}, whose texts differ; use that version, or delete these rows"
            )


def write_texts(runs: Path) -> None:
    """Write what is missing of the documents of each length, a document a line."""
    texts: dict[str, list[str]] = {split: [] for split in ("train", *SPLITS)}
    split_of_remainder = {number: split for split, number in SPLITS.items()}
    for number, text in enumerate(modules()):
        texts[split_of_remainder.get(number % 25, "train")].append(text[:LONGEST])
    for length in LENGTHS:
        for split, split_texts in texts.items():
            file = text_file(runs, length, split)
            if not file.is_file():
                with replacing(file) as stream:
                    documents = (document for text in split_texts for document in cut(text, length))
                    stream.write("".join(f"{document}\n" for document in documents).encode())


def text_file(runs: Path, length: int, split: str) -> Path:
    return runs / f"{split}_{length}.txt"


def modules() -> Iterator[str]:
    """Yield the modules of the standard library in the order of their paths, each as one line."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        if not LEFT_OUT.intersection(file.relative_to(library).parts):
            try:
                yield flattened(file.read_bytes().decode())
            except UnicodeDecodeError:  # of the few modules in another encoding
                continue


def flattened(module: str) -> str:
    """Return a module with ↵ for the end of a line and ⇥ for four spaces of indentation."""
    lines = [re.match(r"( *)(.*)", line.expandtabs(4).rstrip()) for line in module.removesuffix("\n").split("\n")]
    parts = [match.groups() for match in lines if match is not None]
    return "".join("⇥" * (len(indent) // 4) + " ".join(rest.split()) + "↵" for indent, rest in parts)


def cut(text: str, length: int) -> Iterator[str]:
    """Yield the documents of a module; the last one is dropped if it is shorter than half of the others."""
    characters = int(CHARACTERS * length)
    for start in range(0, len(text), characters):
        document = text[start : start + characters].strip()
        if len(document) >= characters // 2:
            yield document


def run_one(run: Run, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a training; return its row with the curve of its validations, or None if it failed."""
    runs = options.runs.resolve()
    row = trained_row(run, [*command(run, runs), *options.override], options.runs)
    if row is None:
        return None
    folder = run.folder(runs)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    curve = [[int(step), round(bits, 4)] for step, bits in curve_of(read_log(folder / "metrics.csv"), f"val/{BITS}")]
    return row | {BITS: results[f"test/{BITS}"], "curve": curve, "python": platform.python_version()}


def measure_runs(options: argparse.Namespace) -> None:
    """Time the training of every finished run that has not been measured."""
    file, finished = options.runs / MEASURES, finished_rows(options.runs)
    with alone(options.runs):
        write_texts(options.runs)
        measured = {(row["attention"], row["length"]) for row in read_rows(file)}
        for row in finished:
            run = Run(row["attention"], row["length"])
            if (run.attention, run.length) not in measured:
                results = timed_training(command(run, options.runs.resolve()), options.updates)
                figures = {name: results[name] for name in ("tokens_per_second", "peak_memory_bytes")}
                figures[SECONDS] = results["train_seconds"] / results["steps"]
                write_rows(file, [*read_rows(file), {**run._asdict(), **figures, "processor": processor()}])


def finished_rows(runs: Path) -> list[dict[str, Any]]:
    rows = rows_of(runs / ROWS, Run._fields)
    if not rows:
        raise UserError(f"{runs} has no finished run; start `scripts.benchmarks.documents run` first")
    return rows


def write_page(options: argparse.Namespace) -> None:
    """Write the page, its picture, and the figures as .json beside it."""
    rows, measures = finished_rows(options.runs), read_rows(options.runs / MEASURES)
    page: Path = options.page
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(rows, measures, page.with_suffix(".png"))
    page.write_text(page_text(rows, measures, page.stem), encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps({"rows": rows, "measures": measures}, indent=1) + "\n")
    print(f"wrote {page}: {len(rows)} of {len(planned())} runs")


Figures = dict[tuple[str, int], float]  # by attention and length


def by_run(rows: Sequence[dict[str, Any]], name: str) -> dict[tuple[str, int], Any]:
    return {(row["attention"], row["length"]): row[name] for row in rows}


def page_text(rows: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]], name: str) -> str:
    bits, speeds = by_run(rows, BITS), by_run(measures, "tokens_per_second")
    memory, seconds = by_run(measures, "peak_memory_bytes"), seconds_on_one_processor(measures)
    processors, until = by_run(measures, "processor"), minutes_until(rows, seconds)
    return PAGE.format(
        python=versions(rows),
        parameters=f"{rows[0]['parameters'] / 1e6:.2f}",
        k=K,
        longest=LONGEST,
        interval=INTERVAL,
        updates=UPDATES,
        tokens=TOKENS,
        finished=len(rows),
        all=len(planned()),
        bits=lengths_table({key: f"{value:.3f}" for key, value in bits.items()}),
        speeds=lengths_table({key: speed_text(key, speeds, processors) for key in speeds}),
        memory=lengths_table({key: f"{value / 1e6:,.0f}" for key, value in memory.items()}),
        minutes=lengths_table(dict.fromkeys(seconds, "–") | {key: f"{m:.1f}" for key, m in until.items()}),
        usual=USUAL,
        processors="; ".join(sorted(set(processors.values()))) or "–",
        commits=commits_and_processors(rows),
        devices=devices(rows),
        example=f"python train.py {' '.join(command(Run('sparse', LENGTHS[-1]), Path('RUNS')))}",
        name=name,
    )


def versions(rows: Sequence[dict[str, Any]]) -> str:
    """Return the versions of Python whose modules were read, with the lengths if they differ."""
    lengths: dict[str, list[int]] = {}
    for row in rows:
        known = lengths.setdefault(row["python"], [])
        known += [] if row["length"] in known else [row["length"]]
    if len(lengths) == 1:
        return next(iter(lengths))
    parts = (f"{version} for n = {', '.join(f'{n:,}' for n in sorted(known))}" for version, known in lengths.items())
    return f"{'; '.join(parts)}.\n  Their texts differ, so only figures of one column can be compared"


def lengths_table(cells: dict[tuple[str, int], str]) -> str:
    """Return a table with a row for each attention that has a cell and a column for each length."""
    names = [name for name in ATTENTIONS if any((name, length) in cells for length in LENGTHS)]
    rows = [[f"`{name}`", *(cells.get((name, length), "–") for length in LENGTHS)] for name in names]
    return table([["attention", *(f"n = {length:,}" for length in LENGTHS)], *rows])


def speed_text(key: tuple[str, int], speeds: Figures, processors: dict[tuple[str, int], str]) -> str:
    """Return a speed, with its ratio to that of the usual attention if one processor has measured both."""
    usual = USUAL, key[1]
    text = f"{speeds[key]:,.0f}"
    is_compared = key != usual and usual in speeds and processors[key] == processors[usual]
    return f"{text} ({speeds[key] / speeds[usual]:.2f})" if is_compared else text


def seconds_on_one_processor(measures: Sequence[dict[str, Any]]) -> Figures:
    """Return the seconds of an update, at each length those of the processor that has measured the usual attention."""
    own: dict[int, str] = {}
    for row in sorted(measures, key=lambda row: row["attention"] != USUAL):
        own.setdefault(row["length"], row["processor"])
    return by_run([row for row in measures if row["processor"] == own[row["length"]]], SECONDS)


def minutes_until(rows: Sequence[dict[str, Any]], seconds: Figures) -> Figures:
    """Return the minutes after which each run has the last validation bits of the usual attention at its length."""
    curves = {(row["attention"], row["length"]): row["curve"] for row in rows}
    minutes = {}
    for (attention, length), curve in curves.items():
        usual = curves.get((USUAL, length))
        if usual is not None and (attention, length) in seconds:
            reached = next((step for step, bits in curve if bits <= usual[-1][1]), None)
            if reached is not None:
                minutes[attention, length] = reached * seconds[attention, length] / 60
    return minutes


def draw(rows: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the curves by minutes of training, a panel for each length; a run without seconds has none."""
    seconds = seconds_on_one_processor(measures)
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(-(-len(LENGTHS) // 2), 2, sharey=True, squeeze=False).flat
    for axes, length in zip(panels, LENGTHS, strict=False):
        for row in rows:
            key = row["attention"], row["length"]
            if row["length"] == length and key in seconds:
                minutes = [step * seconds[key] / 60 for step, _ in row["curve"]]
                color = "black" if row["attention"] == USUAL else f"C{ATTENTIONS.index(row['attention']) - 1}"
                bits = [bits for _, bits in row["curve"]]
                axes.plot(minutes, bits, color=color, linewidth=1.2, label=row["attention"])
        axes.set_title(f"documents of {length:,} tokens", fontsize=9)
        axes.set_xlabel("minutes of training on one core", fontsize=8)
        axes.set_ylabel("validation bits per character", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
