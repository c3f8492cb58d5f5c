"""Time and memory of the sparse patterns against dense attention: `python scripts/benchmark_attention.py`.

The core alone, softmax(Q K^T) V of given queries, keys and values. All ways of a case are timed in turn, and the
fastest of their turns counts, so that a busy machine harms all alike. Tables and plots go to `docs/benchmarks/`.
A small part: `--lengths 256 1024 --k 32 --threads 1 --repeats 3`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

PATTERNS: dict[str, Any] = {"local": LocalPattern, "atrous": AtrousPattern, "sparse": SparsePattern}
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


class Case(NamedTuple):
    pattern: str
    k: int
    causal: bool
    threads: int
    length: int


class Cost(NamedTuple):
    """Seconds, and peak memory beyond the inputs in units of one of them; NaN where it was not or cannot be done."""

    forward: float
    both: float
    forward_memory: float
    both_memory: float


def blocks(pattern: Pattern, causal: bool) -> Way:
    """Our kernel, also below the length from which it is chosen."""
    pattern.product_from = 1
    return automatic(pattern, causal)


def automatic(pattern: Pattern, causal: bool) -> Way:
    def way(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        context = pattern.product(query, keys, values, None, causal)
        if context is None:
            raise NotImplementedError("this device or length has no product")
        return context

    return way


def full(pattern: Pattern, causal: bool) -> Way:
    """Dense attention that sees everything: what a pattern is to be faster than."""
    return lambda query, keys, values: F.scaled_dot_product_attention(
        query, keys, values, is_causal=causal, scale=1.0
    )


def masked(pattern: Pattern, causal: bool) -> Way:
    """The pattern as everyone has it: dense attention with a mask, which is made once."""
    made: dict[int, Tensor] = {}

    def way(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length = keys.shape[2]
        if length not in made:
            places = torch.arange(length, device=keys.device)
            allowed = pattern.allowed(places[None], places)[0]
            made[length] = allowed.tril() if causal else allowed
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=made[length], scale=1.0)

    return way


def flex(pattern: Pattern, causal: bool) -> Way:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled, made = torch.compile(flex_attention), {}

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
    """`pip install local-attention`, with the same window of k keys on each side."""
    from local_attention import LocalAttention

    if not isinstance(pattern, LocalPattern):
        raise NotImplementedError("local-attention has no such pattern")
    return LocalAttention(
        window_size=pattern.k, causal=causal, look_backward=1, look_forward=0 if causal else 1,
        exact_windowsize=True, autopad=True, scale=1.0, use_rotary_pos_emb=False,
    )  # fmt: skip


WAYS = {
    "blocks": blocks, "automatic": automatic, "full": full, "masked": masked, "flex": flex, "lucidrains": lucidrains,
}  # fmt: skip


def measured(case: Case, options: argparse.Namespace) -> dict[str, Cost]:
    """Costs by way; those that cannot run are NaN, and say why."""
    torch.set_num_threads(case.threads)
    dtype = getattr(torch, options.dtype)
    shape = (options.batch, options.heads, case.length, options.width)
    query, keys, values = (torch.randn(shape, dtype=dtype, device=options.device) for _ in range(3))
    inputs = (query * options.width**-0.5, keys, values)
    found = {}
    for name in options.ways:
        pattern = PATTERNS[case.pattern](k=case.k, length_ratio=1.0)
        for both in (False, True):
            try:
                run = step(WAYS[name](pattern, case.causal), inputs, both)
                run()
            except Exception as error:  # whatever keeps a library from running here is a result too
                print(f"  {name}, {'both' if both else 'forward'}: {type(error).__name__}: {str(error)[:90]}")
            else:
                found[name, both] = run
    seconds = in_turns(found, options)
    one = query.numel() * query.element_size()
    memory = {key: peak(run, query.device) / one for key, run in found.items()}
    missing = math.nan
    return {
        name: Cost(
            *(seconds.get((name, both), missing) for both in (False, True)),
            *(memory.get((name, both), missing) for both in (False, True)),
        )
        for name in options.ways
    }


def step(way: Way, inputs: tuple[Tensor, ...], both: bool) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            way(*inputs)

    def forward_and_backward() -> None:
        leaves = [x.detach().requires_grad_() for x in inputs]
        context = way(*leaves)
        torch.autograd.grad(context, leaves, torch.ones_like(context))

    return forward_and_backward if both else forward


def in_turns(
    runs: dict[tuple[str, bool], Callable[[], None]], options: argparse.Namespace
) -> dict[tuple[str, bool], float]:
    """The fastest turn of each; one that has spent its seconds takes no more turns."""
    best = dict.fromkeys(runs, math.inf)
    spent = dict.fromkeys(runs, 0.0)
    for _ in range(options.repeats):
        for key, run in runs.items():
            if spent[key] <= options.seconds:
                started = time.perf_counter()
                run()
                if options.device != "cpu":
                    torch.cuda.synchronize()
                took = time.perf_counter() - started
                best[key], spent[key] = min(best[key], took), spent[key] + took
    return best


def peak(run: Callable[[], None], device: torch.device) -> float:
    """Bytes allocated beyond what there was, at the worst moment: by the allocator's own count, so exact."""
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


def exponent(seconds: dict[int, float]) -> float:
    """Slope of log time over log length, from 1024 to 8192 places; NaN for fewer than two."""
    points = [(math.log(n), math.log(s)) for n, s in seconds.items() if 1024 <= n <= 8192 and s > 0]
    if len(points) < 2 or any(math.isnan(y) for _, y in points):
        return math.nan
    middle_x, middle_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    across = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return across / sum((x - middle_x) ** 2 for x, _ in points)


def table(results: dict[Case, dict[str, Cost]], ways: list[str]) -> Iterable[str]:
    """A table for each pattern, k, causality and number of threads."""
    for key, cases in itertools.groupby(results, key=lambda case: case[:4]):
        lengths = list(cases)
        pattern, k, causal, threads = key
        yield f"\n## {pattern}, k = {k}, {'causal' if causal else 'both sides'}, {threads} threads\n"
        yield "| places | way | forward, ms | × full | forward + backward, ms | × full | memory, q | both, q |"
        yield "|--:|:--|--:|--:|--:|--:|--:|--:|"
        for case, name in itertools.product(lengths, ways):
            cost, dense = results[case][name], results[case].get("full")
            ratios = [b / a for a, b in zip(cost[:2], dense[:2], strict=True)] if dense else [math.nan] * 2
            cells = [
                f"{cost.forward * 1e3:.2f}", f"{ratios[0]:.2f}", f"{cost.both * 1e3:.2f}", f"{ratios[1]:.2f}",
                f"{cost.forward_memory:.2f}", f"{cost.both_memory:.2f}",
            ]  # fmt: skip
            if not math.isnan(cost.forward):
                yield f"| {case.length} | {name} | " + " | ".join(c.replace("nan", "–") for c in cells) + " |"
        slopes = {way: exponent({case.length: results[case][way].both for case in lengths}) for way in ways}
        named = ", ".join(f"{way} {slope:.2f}" for way, slope in slopes.items() if not math.isnan(slope))
        if named:
            yield f"\nForward and backward grow from 1024 to 8192 places with the length to the power of: {named}."


def plot(results: dict[Case, dict[str, Cost]], ways: list[str], folder: Path, stem: str) -> None:
    for key, cases in itertools.groupby(results, key=lambda case: case[:4]):
        lengths = list(cases)
        pattern, k, causal, threads = key
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for way in ways:
            axes.plot(
                [c.length for c in lengths], [results[c][way].both * 1e3 for c in lengths], "o-", label=way
            )
        axes.set(xscale="log", yscale="log", xlabel="places", ylabel="forward and backward, ms")
        axes.set_title(f"{pattern}, k = {k}, {'causal' if causal else 'both sides'}, {threads} threads")
        axes.legend()
        figure.savefig(
            folder / f"{stem}_{pattern}_{k}_{'causal' if causal else 'both'}_{threads}.png", dpi=120
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patterns", nargs="+", default=list(PATTERNS), choices=PATTERNS)
    parser.add_argument("--lengths", nargs="+", type=int, default=[2**i for i in range(6, 15)])
    parser.add_argument("--k", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--causal", nargs="+", type=int, default=[0, 1], choices=[0, 1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument(
        "--repeats", type=int, default=20, help="turns of each way, of which the fastest counts"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="after which a way takes no more turns in a case"
    )
    for name, value in (("batch", 1), ("heads", 8), ("width", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    axes = (options.patterns, options.k, map(bool, options.causal), options.threads, options.lengths)
    results = {}
    for case in itertools.starmap(Case, itertools.product(*axes)):
        print(*(f"{name}={value}" for name, value in case._asdict().items()))
        results[case] = measured(case, options)
    stem = f"attention_{options.device}_{options.dtype}"
    head = (
        f"# Sparse attention, {options.device}, {options.dtype}\n\nThe core alone, torch {torch.__version__}; batch "
        f"{options.batch}, {options.heads} heads of {options.width}. Fastest of {options.repeats} interleaved turns. "
        "Memory is the peak beyond the inputs, in units of the query (q)."
    )
    page = options.output / f"{stem}.md"
    page.write_text("\n".join([head, *table(results, options.ways)]) + "\n", encoding="utf-8")
    plot(results, options.ways, options.output, stem)
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
