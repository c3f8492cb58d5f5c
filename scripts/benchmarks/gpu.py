"""Benchmark of attention on a GPU: `python -m scripts.benchmarks.gpu`.

It measures a training step of self-attention of every preset, forward and backward, at equally many positions in
sequences of several lengths. Each takes turns with `multihead`; the fastest turn counts. Figures are written to
`docs/benchmarks/gpu.json` as they are measured, page and plot next to it; figures that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from scripts.benchmarks.attention import fastest, peak
from scripts.benchmarks.cost_curves import FAMILIES, REFERENCE, build, family, keys_text, step
from scripts.benchmarks.figures_file import commit_text, read_figures
from scripts.benchmarks.presets import presets
from scripts.benchmarks.training import ROOT
from scripts.benchmarks.write_aligning_page import table
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import code
from seq2seq_attn.training.provenance import commit

OUTPUT = ROOT / "docs/benchmarks/gpu.json"
WIDTH, HEADS = 512, 8
LENGTHS = (512, 2048, 8192, 32768)
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
MIB = 2**20
OUT_OF_MEMORY = "out of memory"
CASE = ("preset", "dtype", "length")
PAGE = """\
# On a GPU

Measured on one {device}, torch {torch}, Python {python}; {commits}.
{sections}
Made by these commands (on another GPU or with another torch, give `--output FILE.json`):

```
{commands}
```
"""
SECTION = """
## Self-attention, {dtype}

A training step of self-attention with its projections, forward and backward, without a causal mask: {positions:,}
positions of width {width} in sequences of n, {heads} heads, {dtype}, the presets' own options. Each cell has the time
in ms, in parentheses how many times as fast as `multihead` it is (above 1 is faster, measured in turns), and the memory
that the step holds at most beyond weights and inputs, in MiB. `multihead` is PyTorch's fused attention. The patterns
are computed by the kernels of seq2seq_attn/attention/backend/kernel/triton_kernels.py, which sum gradients in float32,
and therefore hold more, but up to a few hundred positions by PyTorch's fused attention under a mask.

![Time of a step by length, {dtype}]({plot})

{table}
{keys}"""


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=presets(), choices=presets(), metavar="PRESET")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--positions", type=int, default=65536, help="of all sequences together (%(default)s)")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16"], choices=DTYPES)
    parser.add_argument("--seconds", type=float, default=0.3, help="time after which a layer takes no more turns")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--draw", action="store_true", help="write the page of figures that are there")
    options = parser.parse_args(arguments)
    figures = read_figures(options.output, "rows") if options.output.is_file() else {}
    if not options.draw:
        if not torch.cuda.is_available():
            raise UserError("torch finds no GPU here; --draw writes the page of figures that are there")
        if figures and figures["about"] != about(options):
            raise UserError(f"{options.output} has figures of another GPU, torch or --positions; give another --output")
        figures |= {"about": about(options), "commands": [*figures.get("commands", []), command(arguments)]}
        for case in product(options.presets, options.dtypes, options.lengths):
            row = measured(*case, options)
            figures["rows"] = [*(old for old in figures.get("rows", ()) if case_of(old) != case), row]
            options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if not figures:
        raise UserError(f"{options.output} is not there; measure first, on a machine with a GPU")
    for dtype, rows in by_dtype(figures).items():
        plot(rows, plot_file(options.output, dtype))
    page = options.output.with_suffix(".md")
    page.write_text(page_text(figures, options.output), encoding="utf-8")
    print(f"wrote {options.output} and {page}")


def command(arguments: Sequence[str] | None) -> str:
    """Return the command without folders of this machine."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--output" in words:
        del words[words.index("--output") : words.index("--output") + 2]
    return shlex.join(["python", "-m", "scripts.benchmarks.gpu", *words])


def case_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in CASE)


def about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "positions": options.positions,
    }


def measured(preset: str, dtype: str, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the times and the memory of a preset in turns with `multihead`, or why there are none."""
    row: dict[str, Any] = dict(zip(CASE, (preset, dtype, length), strict=True)) | {"commit": commit()}
    sizes = argparse.Namespace(width=WIDTH, heads=HEADS)
    torch.manual_seed(1)
    shape = (max(1, options.positions // length), length, WIDTH)
    x = torch.randn(shape, device="cuda", dtype=DTYPES[dtype], requires_grad=True)
    try:
        layers = {
            name: build(name, length, sizes).to("cuda", DTYPES[dtype]) for name in dict.fromkeys((preset, REFERENCE))
        }
        steps = {name: partial(step, layer, x, False) for name, layer in layers.items()}
        for take in steps.values():
            take()
        seconds = fastest(steps, repeats=30, least=3, seconds=options.seconds, device="cuda")
        row |= {"seconds": seconds[preset], "reference_seconds": seconds[REFERENCE]}
        row["memory"] = peak(steps[preset], x.device)
    except torch.OutOfMemoryError:
        row["outcome"] = OUT_OF_MEMORY
    except Exception as error:  # that an attention does not run here is a result, too
        row["outcome"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    torch.cuda.empty_cache()
    shown = row.get("outcome") or f"{1e3 * row['seconds']:.2f} ms, multihead {1e3 * row['reference_seconds']:.2f} ms"
    print(f"{preset}, {dtype}, {length} positions: {shown}", flush=True)
    return row


def by_dtype(figures: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each type of numbers."""
    rows = figures["rows"]
    return {dtype: [row for row in rows if row["dtype"] == dtype] for dtype in dict.fromkeys(r["dtype"] for r in rows)}


def plot_file(output: Path, dtype: str) -> Path:
    return output.with_name(f"{output.stem}_{dtype}.png")


def page_text(figures: dict[str, Any], output: Path) -> str:
    about = figures["about"]
    sections = "".join(
        SECTION.format(
            positions=about["positions"], width=WIDTH, heads=HEADS, dtype=dtype,
            plot=plot_file(output, dtype).name, table=layer_table(rows), keys=keys(rows),
        )
        for dtype, rows in by_dtype(figures).items()
    )  # fmt: skip
    commits = commit_text([row.get("commit") for row in figures["rows"]])
    return PAGE.format(**about, commits=commits, sections=sections, commands="\n".join(figures["commands"]))


def keys(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the keys that a row of each measured pattern sees."""
    measured = [(row["preset"], row["length"]) for row in rows if "seconds" in row]
    return keys_text(measured, argparse.Namespace(width=WIDTH, heads=HEADS))


def plot(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the time of each preset by length, `multihead` in grey."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    drawn = [row for row in rows if "seconds" in row]
    for preset in dict.fromkeys(row["preset"] for row in drawn):
        line = sorted((row for row in drawn if row["preset"] == preset), key=lambda row: row["length"])
        style: dict[str, Any] = {"color": "0.7", "linewidth": 4} if preset == REFERENCE else {}
        axes.plot(
            [row["length"] for row in line], [1e3 * row["seconds"] for row in line], marker=".", label=preset, **style
        )
    axes.set(xscale="log", yscale="log", xlabel="positions of a sequence", ylabel="ms of a step")
    axes.set_xticks(sorted({row["length"] for row in drawn}))
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())
    axes.grid(color="0.9")
    figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=120)


def layer_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line for each preset, by family."""
    lengths = sorted({row["length"] for row in rows})
    cells = {(row["preset"], row["length"]): layer_cell(row) for row in rows}
    names = sorted({row["preset"] for row in rows}, key=lambda name: (FAMILIES.index(family(name)), name))
    lines = [["family", "attention", *(f"n = {length:,}" for length in lengths)]]
    for name in names:
        lines.append([family(name), code(name), *(cells.get((name, length), "not measured") for length in lengths)])
    return table(lines)


def layer_cell(row: dict[str, Any]) -> str:
    if "outcome" in row:
        return str(row["outcome"])
    ratio = row["reference_seconds"] / row["seconds"]
    return f"{1e3 * row['seconds']:.2f} ({ratio:.2f} ×), {row['memory'] / MIB:,.0f}"


if __name__ == "__main__":
    main()
