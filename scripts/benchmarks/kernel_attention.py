"""Benchmark of feature maps against softmax attention: `python -m scripts.benchmarks.kernel_attention`.

It measures the self-attention layer of each preset, projections included, against `multihead`, whose context is that of
PyTorch's `scaled_dot_product_attention`. The presets of a case take turns, and the fastest turn of each counts. Figures
are written to `docs/benchmarks/kernel_attention.json`, and a table is printed.
For a quick run: `--lengths 256 1024 --threads 1 --repeats 3 --output /tmp/figures.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scripts.benchmarks.attention import fastest, peak
from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.process import keep_freed_memory

OUTPUT = Path(__file__).parents[2] / "docs" / "benchmarks" / "kernel_attention.json"
LENGTHS = [1024, 2048, 4096, 8192, 16384]
SOFTMAX = "multihead"


class Figure(NamedTuple):
    """The seconds of a preset, its peak memory beyond the inputs in bytes, and the seconds of the softmax."""

    preset: str
    causal: bool
    backward: bool
    threads: int
    length: int
    seconds: float
    memory: int
    softmax_seconds: float


def step(layer: Any, x: Tensor, causal: bool, backward: bool) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            layer(x, causal=causal)

    def forward_and_backward() -> None:
        context = layer(x.detach().requires_grad_(), causal=causal).context
        context.backward(torch.ones_like(context))

    return forward_and_backward if backward else forward


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    names = [SOFTMAX, *options.presets]
    for threads, length, causal, backward in itertools.product(
        options.threads, options.lengths, (False, True), (False, True)
    ):
        torch.set_num_threads(threads)
        x = torch.randn(1, length, options.dim, device=options.device)
        more = {"cosformer": [f"feature_map.max_length={length}"]}
        layers = {
            name: build_attention(name, *more.get(name, []), dim=options.dim, num_heads=options.heads).to(x.device)
            for name in names
        }
        steps = {name: step(layer, x, causal, backward) for name, layer in layers.items()}
        seconds = fastest(steps, repeats=options.repeats, least=2, seconds=options.seconds, device=options.device)
        for name in names:
            figures.append(
                Figure(
                    name,
                    causal,
                    backward,
                    threads,
                    length,
                    seconds[name],
                    peak(steps[name], x.device),
                    seconds[SOFTMAX],
                )
            )
            print(row(figures[-1]), flush=True)
    return figures


def row(figure: Figure) -> str:
    side = "causal" if figure.causal else "full"
    passes = "forward and backward" if figure.backward else "forward"
    return (
        f"{figure.preset:10} {side:6} {passes:20} {figure.threads} threads {figure.length:6} positions"
        f" {figure.seconds * 1000:9.1f} ms {figure.memory / 2**20:8.1f} MiB"
        f" {figure.softmax_seconds / figure.seconds:6.2f} times as fast as {SOFTMAX}"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["linear", "performer", "cosformer"])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=20, help="largest number of turns; the fastest counts")
    parser.add_argument("--seconds", type=float, default=2.0, help="time after which a preset takes no more turns")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args(arguments)


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    keep_freed_memory()  # as train.py does
    torch.manual_seed(1)
    figures = measure(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    about = {"torch": torch.__version__, "device": options.device, "dim": options.dim, "heads": options.heads}
    options.output.write_text(json.dumps(about | {"columns": Figure._fields, "rows": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
