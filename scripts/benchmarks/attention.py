"""Benchmark of sparse patterns against dense attention, time and memory: `python -m scripts.benchmarks.attention`.

It measures the core alone, softmax(Q K^T) V of given queries, keys and values. All variants of a case take turns, so
that other load on the machine affects all of them, and the fastest turn of each counts; this takes a quarter of an hour
on two idle cores. Figures are written to `docs/benchmarks/`; `python -m scripts.benchmarks.write_benchmark_page` makes
their page. For a quick run: `--lengths 256 1024 --k 32 --threads 1 --repeats 3 --output /tmp/figures`.
For lucidrains: `pip install --no-deps local-attention einops hyper-connections`. FlexAttention needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from scripts.benchmarks.processor import processor
from seq2seq_attn.attention.backend.fused import fused_attention
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.process import keep_freed_memory
from seq2seq_attn.training.provenance import commit

PATTERNS: dict[str, Any] = {"local": LocalPattern, "atrous": AtrousPattern, "sparse": SparsePattern}
OUTPUT = Path(__file__).parents[2] / "docs" / "benchmarks"
# The lengths that are not powers of two are near those from which blocks are chosen.
LENGTHS = [32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 2048, 4096, 8192, 16384]
K_OF_OTHERS = 32  # the one k at which other libraries are measured
Way = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[], None]
Key = TypeVar("Key")


class Case(NamedTuple):
    causal: bool
    threads: int
    length: int


class Run(NamedTuple):
    """A measured variant; `pattern` and `k` are empty for dense attention, whose cost does not depend on the mask."""

    way: str
    pattern: str
    k: int
    both: bool


def blocks(pattern: Pattern, causal: bool) -> Way:
    """Use our kernel, even below the length from which it is chosen."""
    pattern.fused_from = 1
    return automatic(pattern, causal)


def automatic(pattern: Pattern, causal: bool) -> Way:
    def way(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        context = fused_attention(pattern, query, keys, values, None, causal=causal, rows_match_keys=False)
        if context is None:
            raise NotImplementedError("this device or length has no product")
        return context

    return way


def full(pattern: Pattern, causal: bool) -> Way:
    """Use dense attention to all positions, the reference."""
    return lambda query, keys, values: F.scaled_dot_product_attention(query, keys, values, is_causal=causal, scale=1.0)


def masked(pattern: Pattern, causal: bool) -> Way:
    """Use dense attention with the pattern as a mask, which is computed once."""
    made: dict[int, Tensor] = {}

    def way(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length = keys.shape[2]
        if length not in made:
            positions = torch.arange(length, device=keys.device)
            allowed = pattern.allowed(positions[None], positions)[0]
            made[length] = allowed.tril() if causal else allowed
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=made[length], scale=1.0)

    return way


def flex(pattern: Pattern, causal: bool) -> Way:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled, made = torch.compile(flex_attention, dynamic=False), {}

    def seen(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        allowed = pattern.allowed(row[None], key[None])[0, 0]
        return allowed & (key <= row) if causal else allowed

    def way(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length = keys.shape[2]
        if length not in made:
            made[length] = create_block_mask(seen, None, None, length, length, device=str(keys.device))
        return compiled(query, keys, values, block_mask=made[length], scale=1.0)

    return way


def lucidrains(pattern: Pattern, causal: bool) -> Way:
    """Use lucidrains' local attention with the same window of k keys on each side."""
    from local_attention import LocalAttention

    assert isinstance(pattern, LocalPattern)
    return LocalAttention(
        window_size=pattern.k,
        causal=causal,
        look_backward=1,
        look_forward=0 if causal else 1,
        exact_windowsize=True,
        autopad=True,
        scale=1.0,
        use_rotary_pos_emb=False,
    )


WAYS = {
    "full": full, "masked": masked, "blocks": blocks, "automatic": automatic, "flex": flex, "lucidrains": lucidrains,
}  # fmt: skip


def runs_of(case: Case, options: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs of a case; `automatic` is omitted where it would choose blocks, which are measured anyway."""
    both = (False, True)
    yield from (Run("full", "", 0, b) for b in both)
    if case.length <= options.longest_mask:
        yield from (Run("masked", "", 0, b) for b in both)
    for pattern, k in itertools.product(options.patterns, options.k):
        yield from (Run("blocks", pattern, k, b) for b in both)
        if case.length < PATTERNS[pattern](k=k, length_ratio=1.0).fused_from:
            yield from (Run("automatic", pattern, k, b) for b in both)
    if "local" in options.patterns:
        yield from (Run("lucidrains", "local", K_OF_OTHERS, b) for b in both)
    if case.length in options.flex_lengths and case.threads == max(options.threads):
        passes = both if options.device != "cpu" else (False,)  # no backward on the CPU
        yield from (Run("flex", pattern, K_OF_OTHERS, b) for pattern in options.patterns for b in passes)


def measured(case: Case, options: argparse.Namespace) -> Iterator[list[Any]]:
    """Yield the seconds of each run and, at some lengths, its peak memory without the inputs, in units of the query."""
    torch.set_num_threads(case.threads)
    dtype = getattr(torch, options.dtype)
    shape = (options.batch, options.heads, case.length, options.width)
    query, keys, values = (torch.randn(shape, dtype=dtype, device=options.device) for _ in range(3))
    inputs = (query * options.width**-0.5, keys, values)
    steps = {}
    for run in runs_of(case, options):
        pattern = PATTERNS[run.pattern or "local"](k=run.k or K_OF_OTHERS, length_ratio=1.0)
        try:
            way = WAYS[run.way](pattern, case.causal)
            if run.way in ("flex", "lucidrains"):
                step(way, inputs, run.both)()
        except Exception as error:  # that a library does not run here is a result too
            print(f"  {run.way} {run.pattern}: {type(error).__name__}: {str(error)[:90]}")
        else:
            steps[run] = step(way, inputs, run.both)
    seconds = fastest(
        steps, repeats=options.repeats, least=options.least, seconds=options.seconds, device=options.device
    )
    weighed = case.length in options.memory_lengths and case.threads == max(options.threads)
    one = query.numel() * query.element_size()
    for run, took in seconds.items():
        memory = peak(steps[run], query.device) / one if weighed else None
        yield [*run, *case, float(f"{took:.4g}"), memory and round(memory, 3)]


def step(way: Way, inputs: tuple[Tensor, ...], both: bool) -> Step:
    def forward() -> None:
        with torch.no_grad():
            way(*inputs)

    def forward_and_backward() -> None:
        leaves = [x.detach().requires_grad_() for x in inputs]
        context = way(*leaves)
        torch.autograd.grad(context, leaves, torch.ones_like(context))

    return forward_and_backward if both else forward


def fastest(
    steps: dict[Key, Step], *, repeats: int = 40, least: int = 3, seconds: float = 1.0, device: str = "cpu"
) -> dict[Key, float]:
    """Return the fastest turn of each step; after `seconds` a step takes no further turns beyond `least`."""
    best, spent = dict.fromkeys(steps, math.inf), dict.fromkeys(steps, 0.0)
    for turn in range(repeats):
        for key, take in steps.items():
            if turn < least or spent[key] <= seconds:
                started = time.perf_counter()
                take()
                if device != "cpu":
                    torch.cuda.synchronize()
                took = time.perf_counter() - started
                best[key], spent[key] = min(best[key], took), spent[key] + took
    return best


def peak(run: Step, device: torch.device) -> float:
    """Return the peak number of bytes that a run allocates, as counted by the allocator."""
    if device.type != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = (e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()))
    return max(itertools.accumulate(changes), default=0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", nargs="+", default=list(PATTERNS), choices=PATTERNS)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--k", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--causal", nargs="+", type=int, default=[0, 1], choices=[0, 1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--memory-lengths", nargs="*", type=int, default=[4096, 8192])
    parser.add_argument("--flex-lengths", nargs="*", type=int, default=[1024, 4096])
    parser.add_argument(
        "--longest-mask",
        type=int,
        default=8192,
        help="greatest length with a dense mask; one of 16384 positions needs 1 GiB",
    )
    parser.add_argument("--repeats", type=int, default=60, help="largest number of turns; the fastest counts")
    parser.add_argument("--least", type=int, default=2, help="smallest number of turns")
    parser.add_argument("--seconds", type=float, default=1.0, help="time after which a variant takes no more turns")
    for name, value in (("batch", 1), ("heads", 8), ("width", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


@reports_user_errors
def main() -> None:
    options = arguments()
    keep_freed_memory()  # as train.py does
    torch.manual_seed(1)
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"attention_{options.device}_{options.dtype}.json"
    about = {name: getattr(options, name) for name in ("device", "dtype", "batch", "heads", "width")}
    about |= {
        "arguments": " ".join(sys.argv[1:]),
        "torch": torch.__version__,
        "processor": processor(),
        "commit": commit(),
        "columns": [*Run._fields, *Case._fields, "seconds", "memory"],
    }
    figures: list[list[Any]] = []
    started = time.perf_counter()
    for case in itertools.starmap(Case, itertools.product(map(bool, options.causal), options.threads, options.lengths)):
        figures.extend(measured(case, options))
        lines = ",\n".join(json.dumps(figure) for figure in figures)
        file.write_text(f'{{"about": {json.dumps(about)}, "figures": [\n{lines}\n]}}\n', encoding="utf-8")
        print(*(f"{name}={value}" for name, value in case._asdict().items()), end=" ")
        print(f"after {time.perf_counter() - started:.0f} s", flush=True)
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
