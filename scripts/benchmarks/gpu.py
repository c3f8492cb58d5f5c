"""Benchmark on a GPU, of every attention and of training: `python -m scripts.benchmarks.gpu --data FOLDER`.

`layers` measures a training step of self-attention of every preset, forward and backward, at equally many positions in
sequences of several lengths. Each takes turns with `multihead`; the fastest turn counts. `training` measures `train.py`
and the plain PyTorch loop of `train_plainly.py` on the captions of Multi30k, with the same batches; they are processes
that take turns. Figures are written to `docs/benchmarks/gpu.json` as they are measured, page and plot next to it;
figures that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from scripts.benchmarks.attention import fastest, peak
from scripts.benchmarks.cost_curves import FAMILIES, REFERENCE, build, family, step
from scripts.benchmarks.figures_file import read_figures
from scripts.benchmarks.pace_training import Program
from scripts.benchmarks.peer_data import write_data
from scripts.benchmarks.presets import presets
from scripts.benchmarks.training import COMMON, ROOT, SIZES, all_commands, check_same_batches, composed
from scripts.benchmarks.write_aligning_page import table
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import code

OUTPUT = ROOT / "docs/benchmarks/gpu.json"
WIDTH, HEADS = 512, 8
LENGTHS = (512, 2048, 8192, 32768)
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
PRECISIONS = ("32-true", "bf16-mixed")
GPU_SIZES: dict[str, tuple[dict[str, Any], int]] = {  # the model, and the tokens of a batch
    "small": (SIZES["A"], 16384),
    "rnn": (SIZES["B"], 16384),
    "base": ({"model": "transformer", "layers": 6, "dim": 512, "ff_dim": 2048, "heads": 8}, 32768),
}
PROGRAMS = {"ours": "train.py", "plain_chunked": "plain loop, our loss", "plain_cross_entropy": "plain loop, PyTorch's"}
MIB = 2**20
OUT_OF_MEMORY = "out of memory"
CASE = ("preset", "dtype", "length", "size", "precision", "program")
PAGE = """\
# On a GPU

Measured on one {device}, torch {torch}, Python {python}.
{layers}{training}
Made by these commands:

```
{commands}
```
"""
LAYERS = """
## Self-attention, {dtype}

A training step of self-attention with its projections, forward and backward, without a causal mask: {positions:,}
positions of width {width} in sequences of n, {heads} heads, {dtype}, the presets' own options. Each cell has the time
in ms, in parentheses how many times as fast as `multihead` it is (above 1 is faster, measured in turns), and the memory
that the step holds at most beyond weights and inputs, in MiB. `multihead` is PyTorch's fused attention. The patterns
are computed by the kernels of seq2seq_attn/attention/backend/kernel/triton_kernels.py, which sum gradients in float32,
and therefore hold more, but up to a few hundred positions by PyTorch's fused attention under a mask.{notes}

![Time of a step by length, {dtype}]({plot})

{table}
"""
TRAINING = """
## Training

Tokens of source and target a second, without padding, on captions of Multi30k with 8,000 tokens in the vocabulary;
all programs read the same batches in turns, and the median turn of {turns} counts. `train.py` runs with its defaults,
without validation. The plain loop is scripts/benchmarks/train_plainly.py: PyTorch's own modules without logging,
schedule or checkpoints. **small** has four layers of width 128 on each side, **base** six of width 512, **rnn** a
bidirectional GRU and a GRU decoder of width 256 with additive attention.

{table}
"""


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--presets", nargs="+", default=presets(), choices=presets(), metavar="PRESET")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--positions", type=int, default=65536, help="of all sequences together (%(default)s)")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16"], choices=DTYPES)
    parser.add_argument("--sizes", nargs="+", default=list(GPU_SIZES), choices=GPU_SIZES)
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--updates", type=int, default=30, help="updates per turn")
    parser.add_argument("--seconds", type=float, default=0.3, help="time after which a layer takes no more turns")
    parser.add_argument("--data", type=Path, help="folder of Multi30k's train.en.gz and so on; default: download")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--draw", action="store_true", help="write the page of figures that are there")
    options = parser.parse_args(arguments)
    figures = read_figures(options.output, "about") if options.output.is_file() else {}
    if not options.draw:
        if not torch.cuda.is_available():
            raise UserError("torch finds no GPU here; --draw writes the page of figures that are there")
        if figures and figures["about"] != about(options):
            raise UserError(f"{options.output} has figures of another GPU, torch or --positions; give another --output")
        figures |= {"about": about(options), "commands": [*figures.get("commands", []), command(arguments)]}
        for section in options.sections:
            for row in SECTIONS[section](options):
                figures[section] = replaced(figures.get(section, []), row)
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
    for name in ("--data", "--output"):
        if name in words:
            words[words.index(name) : words.index(name) + 2] = ["--data", "FOLDER"] if name == "--data" else []
    return shlex.join(["python", "-m", "scripts.benchmarks.gpu", *words])


def replaced(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with this one in place of an older one of the same case."""
    return [old for old in rows if any(old.get(name) != row.get(name) for name in CASE)] + [row]


def about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "positions": options.positions,
    }


def layers(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for dtype, preset, length in product(options.dtypes, options.presets, options.lengths):
        yield measured_layer(preset, dtype, length, options)


def measured_layer(preset: str, dtype: str, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the times and the memory of a preset in turns with `multihead`, or why there are none."""
    row: dict[str, Any] = {"preset": preset, "dtype": dtype, "length": length}
    sizes: Any = SimpleNamespace(width=WIDTH, heads=HEADS)
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


def training(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in options.sizes:
            model, batch_tokens = GPU_SIZES[size]
            given = SimpleNamespace(data=options.data, tokens=8000, batch_tokens=batch_tokens, override=[])
            data = folder / size / "data"
            known, _ = write_data(composed(given), data)  # type: ignore[arg-type]
            for precision in options.precisions:
                settings = model | COMMON | known | {"batch_tokens": batch_tokens, "device": "cuda"}
                settings["precision"] = precision
                given.override = ["trainer=gpu", f"trainer.precision={precision}"]
                commands = all_commands(size, settings, given, {}, folder / size / precision, data)  # type: ignore[arg-type]
                yield from in_turns(
                    commands, folder / size / precision, options, {"size": size, "precision": precision}
                )


def in_turns(
    commands: dict[str, list[str]], folder: Path, options: argparse.Namespace, row: dict[str, str]
) -> list[dict[str, Any]]:
    """Return a row for each program, with the figures of its turns."""

    def start(name: str) -> Program:
        return Program(commands[name], folder / f"{name}.log", {"PYTHONPATH": str(ROOT)})

    with ThreadPoolExecutor() as pool:
        programs = dict(zip(commands, pool.map(start, commands), strict=True))
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    try:
        for turn in range(options.turns + 1):
            for name, program in programs.items():
                measurement = program.turn(options.updates)
                if turn:  # the first one warms up
                    turns[name].append(measurement)
    finally:
        for program in programs.values():
            program.end()
    check_same_batches(turns)
    for name, taken in turns.items():
        print(f"{', '.join(row.values())}, {PROGRAMS[name]}: {speed(taken):,.0f} tokens/s", flush=True)
    return [row | {"program": name, "turns": taken} for name, taken in turns.items()]


SECTIONS = {"layers": layers, "training": training}


def speed(turns: Sequence[dict[str, Any]]) -> float:
    return median(turn["tokens"] / turn["seconds"] for turn in turns)


def by_dtype(figures: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of layers by their type of numbers."""
    rows = figures.get("layers", ())
    return {dtype: [row for row in rows if row["dtype"] == dtype] for dtype in dict.fromkeys(r["dtype"] for r in rows)}


def plot_file(output: Path, dtype: str) -> Path:
    return output.with_name(f"{output.stem}_{dtype}.png")


def page_text(figures: dict[str, Any], output: Path) -> str:
    about, training = figures["about"], ""
    notes = "".join(f" {note}" for note in figures.get("notes", ()))
    layers = "".join(
        LAYERS.format(
            positions=about["positions"], width=WIDTH, heads=HEADS, dtype=dtype, notes=notes,
            plot=plot_file(output, dtype).name, table=layer_table(rows),
        )
        for dtype, rows in by_dtype(figures).items()
    )  # fmt: skip
    if "training" in figures:
        turns = len(figures["training"][0]["turns"])
        training = TRAINING.format(turns=turns, table=training_table(figures["training"]))
    return PAGE.format(**about, layers=layers, training=training, commands="\n".join(figures["commands"]))


def plot(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the time of each preset by length, `multihead` in grey."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for preset in dict.fromkeys(row["preset"] for row in rows):
        line = sorted(
            (row for row in rows if row["preset"] == preset and "seconds" in row), key=lambda row: row["length"]
        )
        style: dict[str, Any] = {"color": "0.7", "linewidth": 4} if preset == REFERENCE else {}
        axes.plot(
            [row["length"] for row in line], [1e3 * row["seconds"] for row in line], marker=".", label=preset, **style
        )
    axes.set(xscale="log", yscale="log", xlabel="positions of a sequence", ylabel="ms of a step")
    axes.set_xticks(sorted({row["length"] for row in rows}))
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
        lines.append([family(name), code(name), *(cells.get((name, length), "") for length in lengths)])
    return table(lines)


def layer_cell(row: dict[str, Any]) -> str:
    if "outcome" in row:
        return str(row["outcome"])
    ratio = row["reference_seconds"] / row["seconds"]
    return f"{1e3 * row['seconds']:.2f} ({ratio:.2f} ×), {row['memory'] / MIB:,.0f}"


def training_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line for each size and precision."""
    lines = [
        ["model", "precision", *(f"{name}, tokens/s" for name in PROGRAMS.values()), "train.py against the better"]
    ]
    for size, precision in dict.fromkeys((row["size"], row["precision"]) for row in rows):
        turns = {row["program"]: row["turns"] for row in rows if (row["size"], row["precision"]) == (size, precision)}
        speeds = {name: speed(taken) for name, taken in turns.items()}
        best = max((name for name in speeds if name != "ours"), key=lambda name: speeds[name])
        ratio = median(
            (our["tokens"] / our["seconds"]) / (their["tokens"] / their["seconds"])
            for our, their in zip(turns["ours"], turns[best], strict=True)
        )
        lines.append([size, precision, *(f"{speeds[name]:,.0f}" for name in PROGRAMS), f"{ratio:.2f} ×"])
    return table(lines)


if __name__ == "__main__":
    main()
