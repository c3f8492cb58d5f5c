"""Time and memory of every preset by length: `python -m scripts.benchmarks.cost_curves`.

It measures a training step of self-attention, forward and backward, of every preset in `conf/attention`, at 128 to 8192
positions. Each row is measured by a process of its own, whose memory is limited, so that a length that does not fit is
a row of the table. The process takes turns with `multihead`, that is, torch's fused attention, so that other load on
the machine affects both; the fastest turn of each counts.

A row is written to the `--output` file as soon as it is measured, and the same command continues where it was
interrupted. At the end, or with `--draw` at once, the table and the plots are written next to that file; the page names
the commands that measured.

Two passes over long sequences, on one thread and on two, of feature maps and patterns only:
`--families "feature maps" patterns --lengths 1024 2048 4096 8192 16384 --threads 1 2 --output FILE.json`.
For a quick run: `--presets multihead none --lengths 16 32 --width 16 --heads 2 --output /tmp/costs.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from torch import Tensor

from scripts import conf_files
from scripts.benchmarks.attention import fastest, peak
from scripts.benchmarks.figures_file import commit_text, read_figures
from scripts.benchmarks.presets import presets
from scripts.benchmarks.processor import processor
from seq2seq_attn.attention.build import build_attention, compose_factory
from seq2seq_attn.comparison.figures import listed
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.process import keep_freed_memory
from seq2seq_attn.training.provenance import commit

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "docs/benchmarks/cost_curves.json"
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
REFERENCE = "multihead"
OUT_OF_MEMORY, TOO_SLOW = "out of memory", "too slow"
FAMILIES = ("scores", "synthesizers", "normalizers", "patterns", "feature maps", "delta rule", "mixes and gates")
FOR_LONG_SEQUENCES = {"patterns", "feature maps", "delta rule"}
GIB, MIB = 2**30, 2**20
MEASURED = (
    "Seconds and memory of one step of self-attention, forward and backward: {batch} × n positions of width {width}, "
    "{heads} heads, float32, {processor}, torch {torch}. **×** is the time of `multihead`, which is torch's fused "
    "attention and its projections, divided by the time of the preset, both measured in turns: above 1 is faster. "
    "Memory is what the layer's weights and the step hold at most. A process had {gib:g} GiB; what does not fit is "
    '"out of memory", and a step that takes more than {timeout:g} s is "too slow". Tables of positions have n '
    "positions."
)
TEXT = """\
# {title}

{measured}
{notes}
{sections}

Made by {commands}; {commits}.

The file of figures is only extended on the processor and with the torch version that measured it; elsewhere, give
another file by `--output FILE.json`.
"""
GROWTH = (1.2, 6.0)  # of the time per doubling of the length; a quadratic step takes 4 times as long
IRREGULAR = """
† Since the length before, the time grew less than {least:g} times or more than {most:g} times per doubling. At the
longest length that fits into memory this may be growth near its limit; elsewhere other load may have disturbed one of
the two figures, which should be measured again before anything is concluded from them.
"""
KEYS = """
Patterns have the options of their presets, so they see different numbers of keys: compare them only in view of these.
The options are those of the presets when this page was written; the keys are those of a row in the middle of a
sequence, mean of {middle} rows.

{table}
"""
MIDDLE = 64  # rows in the middle of a sequence, whose keys are counted


class Row(NamedTuple):
    """A measured step.

    Attributes:
        outcome: empty, or why there are no figures.
        seconds, reference_seconds: of the preset and of `multihead` in the same process.
        memory: bytes of the weights and, at most, of a step.
    """

    preset: str
    causal: bool
    threads: int
    length: int
    outcome: str = ""
    seconds: float | None = None
    reference_seconds: float | None = None
    memory: int | None = None

    @property
    def case(self) -> tuple[str, bool, int, int]:
        return self[:4]


class Figures(NamedTuple):
    """The content of a file of figures.

    Attributes:
        about: what all rows have in common; `note`, if it is there, says how the machine was used meanwhile.
        commands: those that measured the rows.
        commits: those of the code that measured, where they are known.
    """

    about: dict[str, Any]
    commands: list[str]
    commits: list[str]
    rows: dict[tuple[str, bool, int, int], Row]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.row:
        preset, causal, threads, length = options.row
        print(json.dumps(measure(Row(preset, causal == "1", int(threads), int(length)), options)))
        return
    figures = read(options)
    if not options.draw:
        for case in missing(figures.rows, options):
            figures.rows[case.case] = row = limited(figures.rows, case, options)
            if command(options) not in figures.commands:
                figures.commands.append(command(options))
            if (made := commit()) and made not in figures.commits:
                figures.commits.append(made)
            write(figures, options.output)
            print(*row.case, row.outcome or f"{row.seconds:.3g} s, {row.memory / MIB:.0f} MiB", flush=True)
    print(f"wrote {options.output} and {draw(figures, options.output)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=presets(), choices=presets(), metavar="PRESET")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--causal", nargs="+", type=int, default=[0], choices=[0, 1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    for name, value in (("batch", 1), ("width", 512), ("heads", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--gib", type=float, default=12.0, help="memory of a process")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds after which a process is ended")
    parser.add_argument("--repeats", type=int, default=40, help="largest number of turns")
    parser.add_argument("--least", type=int, default=2, help="smallest number of turns")
    parser.add_argument("--seconds", type=float, default=1.0, help="time after which there are no more turns")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--draw", action="store_true", help="measure nothing: write table and plots of what there is")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)  # of a process of this script
    return parser.parse_args(arguments)


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Return what all rows of a file have in common."""
    names = ("batch", "width", "heads", "gib", "timeout")
    return {name: getattr(options, name) for name in names} | {"torch": torch.__version__, "processor": processor()}


def read(options: argparse.Namespace) -> Figures:
    """Return what an earlier run of the command wrote, or no rows.

    Raises:
        UserError: if the rows were measured in another way, or if there are none to draw.
    """
    if not (options.draw or options.output.exists()):
        return Figures(about(options), [], [], {})
    written = read_figures(options.output, "rows")
    other = [name for name, value in about(options).items() if written["about"].get(name) != value]
    if other and not options.draw:
        raise UserError(
            f"{options.output} has figures of another {', '.join(other)}; give another file by --output, or delete it"
        )
    rows = (Row(*row) for row in written["rows"])
    commands = written.get("commands", [command(options)])  # older files have none
    return Figures(written["about"], commands, written.get("commits", []), {row.case: row for row in rows})


def write(figures: Figures, output: Path) -> None:
    lines = ",\n".join(json.dumps(row) for row in figures.rows.values())
    head = f'"about": {json.dumps(figures.about)},\n"commands": {json.dumps(figures.commands)}'
    head += f',\n"commits": {json.dumps(figures.commits)}' if figures.commits else ""
    text = f'{{{head},\n"rows": [\n{lines}\n]}}\n'
    with replacing(output) as stream:
        stream.write(text.encode())


def missing(rows: dict[tuple[str, bool, int, int], Row], options: argparse.Namespace) -> Iterator[Row]:
    chosen = [preset for preset in options.presets if family(preset) in options.families or preset == REFERENCE]
    for case in itertools.product(chosen, map(bool, options.causal), options.threads, sorted(options.lengths)):
        if case not in rows:
            yield Row(*case)


def limited(rows: dict[tuple[str, bool, int, int], Row], case: Row, options: argparse.Namespace) -> Row:
    """Measure a row in a process of its own; a length after one that did not fit or took too long is not tried."""
    shorter = [row for row in rows.values() if row.case[:3] == case.case[:3] and row.length < case.length]
    failed = next((row.outcome for row in shorter if row.outcome), None)
    if failed:
        return case._replace(outcome=failed)
    given = ("batch", "width", "heads", "gib", "repeats", "least", "seconds")
    words = [word for name in given for word in (f"--{name}", str(getattr(options, name)))]
    words += ["--row", case.preset, str(int(case.causal)), str(case.threads), str(case.length)]
    command = [sys.executable, "-m", "scripts.benchmarks.cost_curves", *words]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": str(case.threads)},
            capture_output=True,
            text=True,
            timeout=options.timeout,
        )
    except subprocess.TimeoutExpired:
        return case._replace(outcome=TOO_SLOW)
    if done.returncode == 0:
        return Row(*json.loads(done.stdout.splitlines()[-1]))
    killed = done.returncode < 0 or "bad_alloc" in done.stderr  # by the system, or by a library without memory
    return case._replace(outcome=OUT_OF_MEMORY if killed else last_line(done.stderr))


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "failed")


def measure(case: Row, options: argparse.Namespace) -> Row:
    """Return the row of this process, in turns with the reference."""
    keep_freed_memory()  # as train.py does
    torch.set_num_threads(case.threads)
    torch.manual_seed(1)
    try:
        limit_memory(options.gib)
        x = torch.randn(options.batch, case.length, options.width, requires_grad=True)
        names = dict.fromkeys((case.preset, REFERENCE))
        layers = {name: build(name, case.length, options) for name in names}
        steps = {name: partial(step, layer, x, case.causal) for name, layer in layers.items()}
        fastest_seconds = fastest(steps, repeats=options.repeats, least=options.least, seconds=options.seconds)
        memory = peak(steps[case.preset], x.device)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return case._replace(outcome=OUT_OF_MEMORY)
    kept = itertools.chain(layers[case.preset].parameters(), layers[case.preset].buffers())
    return case._replace(
        seconds=float(f"{fastest_seconds[case.preset]:.4g}"),
        reference_seconds=float(f"{fastest_seconds[REFERENCE]:.4g}"),
        memory=memory + sum(one.numel() * one.element_size() for one in kept),
    )


def limit_memory(gib: float) -> None:
    """Let this process map so much more than it has mapped until now."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(gib * GIB),) * 2)


def build(preset: str, length: int, options: argparse.Namespace) -> Any:
    """Return self-attention of a preset in training; what has a number of positions gets `length` of them."""
    lengths = [f"{name}={length}" for name in options_called("max_length", compose_factory(preset))]
    return build_attention(preset, *lengths, dim=options.width, num_heads=options.heads).train()


def options_called(name: str, part: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all options of this name in a part and its parts."""
    children = part.keywords if isinstance(part, partial) else part if isinstance(part, dict) else {}
    for key, child in children.items():
        if key == name:
            yield path + key
        yield from options_called(name, child, f"{path}{key}.")


def step(layer: Any, x: Tensor, causal: bool) -> None:
    attended = layer(x, causal=causal)
    outputs = [one for one in (attended.context, attended.log_prob) if one is not None]
    inputs = [x, *(weight for weight in layer.parameters() if weight.requires_grad)]
    torch.autograd.grad(outputs, inputs, [torch.ones_like(one) for one in outputs], allow_unused=True)


@cache
def family(preset: str) -> str:
    """Return the part by which a preset differs from `multihead`; of several, the one that costs most."""
    factory = compose_factory(preset)
    parts = {key: part.func.__name__ for key, part in factory.keywords.items() if isinstance(part, partial)}
    if factory.func.__name__ != "Attention":
        return "feature maps" if "feature_map" in factory.keywords else "delta rule"
    if parts.get("mix") or parts.get("gate"):
        return "mixes and gates"
    if parts["pattern"] != "FullPattern":
        return "patterns"
    if parts["normalizer"] != "SoftmaxNormalizer":
        return "normalizers"
    return "synthesizers" if parts["score"].startswith(("Synthesizer", "Mixture")) else "scores"


def draw(figures: Figures, output: Path) -> Path:
    """Write the page and its plots next to the figures; return the path of the page."""
    sections, rows = [], list(figures.rows.values())
    families = {preset: family(preset) for preset in dict.fromkeys(row.preset for row in rows)}
    refused = {row.preset: row.outcome for row in rows if row.outcome not in ("", OUT_OF_MEMORY, TOO_SLOW)}
    rows = [row for row in rows if row.preset not in refused]
    for causal, threads in sorted({(row.causal, row.threads) for row in rows}):
        some = [row for row in rows if (row.causal, row.threads) == (causal, threads)]
        title = f"{'Causal' if causal else 'Both sides'}, threads: {threads}"
        stem = f"{output.stem}_{'causal' if causal else 'both_sides'}_{threads}"
        plot(some, families, output.with_name(f"{stem}.png"), title)
        sections += [f"## {title}\n", f"![Time and memory by length, {title}]({stem}.png)\n"]
        sections += [
            "Time in ms, and ×:\n",
            table(some, families, partial(times, irregular=irregular(some))),
            "Memory in MiB:\n",
            table(some, families, memories),
        ]
    if refused:
        sections += ["## Not measured\n", *(f"- `{preset}`: {reason}" for preset, reason in sorted(refused.items()))]
    page = output.with_suffix(".md")
    text = TEXT.format(
        measured=filled(MEASURED.format(**figures.about)),
        title="The cost of long sequences" if is_of_long_sequences(families) else "The cost of attentions",
        notes=notes(figures, families, refused, rows),
        sections="\n".join(sections).rstrip(),
        commands=" and ".join(f"`{one}`" for one in figures.commands),
        commits=commit_text(figures.commits),
    )
    page.write_text(text, encoding="utf-8")
    return page


def filled(paragraph: str) -> str:
    return fill(paragraph, 120, break_on_hyphens=False, break_long_words=False)


def is_of_long_sequences(families: dict[str, str]) -> bool:
    """Return whether only those families were measured that are made for long sequences, beside the reference."""
    return {family for preset, family in families.items() if preset != REFERENCE} <= FOR_LONG_SEQUENCES


def notes(figures: Figures, families: dict[str, str], refused: dict[str, str], rows: list[Row]) -> str:
    """Return what a reader has to know of the figures: which presets they have, and what disturbed them."""
    lines = []
    if not is_of_long_sequences(families):
        every = conf_files.presets()
        lacking = [f"`{preset}`" for preset in every if preset not in families]
        text = f"The tables have {len(families) - len(refused)} of the {len(every)} presets."
        if refused:
            text += f" {len(refused)} cannot be measured like this (see the end)."
        step_by_step = [one for one in lacking if one.strip("`") not in presets()]
        if step_by_step:
            text += f" {listed(step_by_step)} go step by step."
        if len(lacking) > len(step_by_step):
            text += f" Not measured yet: {', '.join(one for one in lacking if one not in step_by_step)}."
        lines.append(text)
    lines += [figures.about["note"]] if figures.about.get("note") else []
    measured = [row for row in rows if not row.outcome]
    lines.append(weights_note(dict.fromkeys(row.preset for row in measured), figures.about))
    text = "".join(f"\n{filled(line)}\n" for line in lines if line)
    sizes = argparse.Namespace(width=figures.about["width"], heads=figures.about["heads"])
    text += keys_text([(row.preset, row.length) for row in measured], sizes)
    if any(irregular([row for row in rows if row.case[1:3] == key]) for key in {row.case[1:3] for row in rows}):
        text += IRREGULAR.format(least=GROWTH[0], most=GROWTH[1])
    return text


def weights_note(names: Iterable[str], about: dict[str, Any]) -> str:
    """Return which presets have fewer weights than `multihead`, whose projections are part of its time."""
    sizes = argparse.Namespace(width=about["width"], heads=about["heads"])
    counts = {
        name: sum(weight.numel() for weight in build(name, 1, sizes).parameters())
        for name in sorted({*names, REFERENCE})
        if not any(options_called("max_length", compose_factory(name)))
    }
    fewer: dict[int, list[str]] = defaultdict(list)
    for name, count in counts.items():
        if count < counts[REFERENCE]:
            fewer[count].append(f"`{name}`")
    if not fewer:
        return ""
    groups = "; ".join(f"{count:,} in {', '.join(fewer[count])}" for count in sorted(fewer))
    return (
        f"× compares whole layers, not attention alone: `{REFERENCE}` has {counts[REFERENCE]:,} weights in its "
        "projections, whose products are part of its time. Without position tables, these presets have fewer weights: "
        f"{groups}."
    )


def keys_text(measured: Sequence[tuple[str, int]], sizes: argparse.Namespace) -> str:
    """Return a table of how many keys a row of each measured pattern sees, or nothing if none was measured.

    Args:
        measured: presets and lengths.
        sizes: `width` and `heads` of the layers.
    """
    names = [name for name in dict.fromkeys(name for name, _ in measured) if family(name) == "patterns"]
    if not names:
        return ""
    lengths = sorted({length for _, length in measured})
    lengths = [lengths[0], lengths[-1]] if len(lengths) > 1 else lengths
    lines = [["pattern", "options", *(f"keys, n = {length:,}" for length in lengths)], [":--", ":--"]]
    lines[1] += ["--:"] * len(lengths)
    for name in sorted(names):
        shown = ", ".join(f"{key} = {value}" for key, value in own_options(name).items())
        lines.append([f"`{name}`", shown, *(keys_of_a_row(name, length, sizes) for length in lengths)])
    return KEYS.format(middle=MIDDLE, table="\n".join(f"| {' | '.join(line)} |" for line in lines))


def own_options(preset: str) -> dict[str, Any]:
    """Return the numbers of a preset's pattern; of several patterns those of the first, which the one layer has."""
    pattern = compose_factory(preset).keywords["pattern"]
    while "patterns" in pattern.keywords:
        pattern = next(iter(pattern.keywords["patterns"].values()))
    numbers = {key: value for key, value in pattern.keywords.items() if key not in ("length_ratio", "seed")}
    return {key: [list(pair) for pair in value] if key == "segments" else value for key, value in numbers.items()}


def keys_of_a_row(preset: str, length: int, sizes: argparse.Namespace) -> str:
    """Return how many keys a row in the middle of a sequence sees."""
    pattern = build(preset, 1, sizes).attention.pattern
    if pattern.selects:
        return "by content"
    start = max(0, (length - MIDDLE) // 2)
    rows = torch.arange(start, min(length, start + MIDDLE))
    centre = rows.double() if pattern.reads_query else rows  # predicted ones lie between two positions
    return f"{pattern.allowed(centre[None], torch.arange(length)).sum(-1).double().mean():,.0f}"


def irregular(rows: Iterable[Row]) -> set[tuple[str, int]]:
    """Return the presets and lengths whose time has not grown as that of any algorithm here since the length before."""
    found = set()
    by_preset: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.length):
        if row.seconds is not None:
            by_preset[row.preset].append(row)
    for preset, line in by_preset.items():
        for before, row in itertools.pairwise(line):
            assert before.seconds is not None
            assert row.seconds is not None
            growth = (row.seconds / before.seconds) ** (1 / math.log2(row.length / before.length))
            if not GROWTH[0] <= growth <= GROWTH[1]:
                found.add((preset, row.length))
    return found


def command(options: argparse.Namespace) -> str:
    """Return the command that measures with these options, without those that are as usual.

    A file outside of the repository is given by its name, or the page would show folders of this machine.
    """
    words = ["python", "-m", "scripts.benchmarks.cost_curves"]
    usual = parse([])
    for name, value in vars(options).items():
        if name not in ("draw", "output") and value != getattr(usual, name):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    output = options.output.resolve()
    if output != OUTPUT:
        words += ["--output", str(output.relative_to(ROOT)) if output.is_relative_to(ROOT) else output.name]
    return shlex.join(words)


def table(rows: list[Row], families: dict[str, str], cell: Callable[[Row], str]) -> str:
    cells = {(row.preset, row.length): row.outcome or cell(row) for row in rows}
    lengths = sorted({row.length for row in rows})
    lines = [["family", "preset", *map(str, lengths)], [":--", ":--", *["--:"] * len(lengths)]]
    for preset in sorted({row.preset for row in rows}, key=lambda preset: (FAMILIES.index(families[preset]), preset)):
        lines.append([families[preset], f"`{preset}`", *(cells.get((preset, length), "–") for length in lengths)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def times(row: Row, irregular: Container[tuple[str, int]]) -> str:
    assert row.seconds is not None
    assert row.reference_seconds is not None
    mark = " †" if (row.preset, row.length) in irregular else ""
    return f"{digits(row.seconds * 1e3)} ({row.reference_seconds / row.seconds:.2f} ×){mark}"


def memories(row: Row) -> str:
    assert row.memory is not None
    return digits(row.memory / MIB)


def digits(number: float) -> str:
    """Return a number with three digits or, from 1000 on, without a fraction."""
    return f"{number:,.{max(0, 2 - math.floor(math.log10(number)))}f}" if number > 0 else "0"


def plot(rows: list[Row], families: dict[str, str], file: Path, title: str) -> None:
    """Draw a row of panels for each family: time beside memory, with `multihead` in grey in each."""
    by_preset: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.length):
        if not row.outcome:
            by_preset[row.preset].append(row)
    compared = {families[row.preset] for row in rows if row.preset != REFERENCE}
    names = [name for name in FAMILIES if name in compared] or [families[REFERENCE]]
    figure = Figure(figsize=(11, 3.4 * len(names)), layout="constrained")
    figure.suptitle(f"Self-attention, forward and backward. {title}. Grey: {REFERENCE}")
    grid = figure.subplots(len(names), 2, sharex=True, sharey="col", squeeze=False)
    for panels, name in zip(grid, names, strict=True):
        others = [preset for preset in by_preset if families[preset] == name and preset != REFERENCE]
        for axes, label, figure_of in (
            (panels[0], "ms", lambda row: row.seconds * 1e3),
            (panels[1], "MiB", lambda row: row.memory / MIB),
        ):
            for i, preset in enumerate([REFERENCE, *others]):
                line = by_preset[preset]
                style = {"color": f"C{i % 10}", "linestyle": "-" if i <= 10 else "--", "label": preset}
                if preset == REFERENCE:
                    style = {"color": "0.75", "linewidth": 4}
                axes.plot([r.length for r in line], [figure_of(r) for r in line], marker=".", **style)
            axes.set(xscale="log", yscale="log", ylabel=label, title=name)
            axes.grid(color="0.9")
            axes.xaxis.set_major_locator(FixedLocator(sorted({row.length for row in rows})))
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_locator(NullLocator())
            axes.tick_params(labelbottom=True)
        if others:
            panels[1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1.02, 0.5))
    for axes in grid[-1]:
        axes.set_xlabel("positions")
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()
