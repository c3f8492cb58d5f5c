"""Benchmark of sparse patterns inside a model against dense ones: `python -m scripts.benchmarks.attention_layers`.

It measures a Transformer layer, a training step on long documents, batches with padding, and scores that need blocks.
The variants of a section take turns, and the fastest turn of each counts; this takes five minutes on two idle cores.
Figures are written to `docs/benchmarks/`; `python -m scripts.benchmarks.write_benchmark_page` makes their page.
For a quick run: `--sections layer --small --output /tmp/figures.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from scripts.benchmarks.attention import PATTERNS, Step, fastest
from scripts.benchmarks.processor import processor
from seq2seq_attn.attention.backend.fused import fused_attention
from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.process import keep_freed_memory
from seq2seq_attn.training.loss import label_smoothed_cross_entropy
from seq2seq_attn.training.provenance import commit

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "docs" / "benchmarks" / "attention_layers.json"
K = 32
VOCABULARY = 8000
SMALL = 16  # divisor of all lengths with `--small`


class Figure(NamedTuple):
    """The seconds of a variant and of its dense reference."""

    section: str
    case: str
    way: str
    seconds: float
    dense_seconds: float


def layer(shorter: int) -> Iterator[Figure]:
    """Measure an encoder layer and its attention, forward and backward: width 512, 8 heads, feed-forward 2048."""
    length = 4096 // shorter
    x, mask = torch.randn(1, length, 512), torch.ones(1, length, dtype=torch.bool)
    layers, attentions = {}, {}
    for name in ("multihead", *PATTERNS):
        whole = model(name, "model.encoder.dim=512", "model.encoder.num_layers=1", "model.decoder.num_layers=1")
        layers[name] = both_ways(lambda x, one=whole.encoder.layers[0]: one(x, mask, False)[0], x)
        k = [f"pattern.k={K}"] if name in PATTERNS else []
        alone = build_attention(name, *k, dim=512, num_heads=8)
        attentions[name] = both_ways(lambda x, one=alone: one(x).context, x)
    most = torch.get_num_threads()
    for threads in (most, 1):
        torch.set_num_threads(threads)
        case = f"{length} positions, threads: {threads}"
        yield from against("multihead", fastest(layers), "layer", case)
        yield from against("multihead", fastest(attentions), "layer", f"{case}, its attention alone")
    torch.set_num_threads(most)


def training(shorter: int) -> Iterator[Figure]:
    """Measure one update of a model of 4 + 4 layers of width 256 on two documents, with loss, backward and Adam."""
    length = 2000 // shorter
    source, target = (torch.randint(4, VOCABULARY, (2, length)) for _ in range(2))
    real = torch.ones_like(source, dtype=torch.bool)
    steps = {}
    for name in ("multihead", *PATTERNS):
        whole = model(name, "model.encoder.num_layers=4", "model.decoder.num_layers=4").train()
        optimizer = torch.optim.Adam(whole.parameters())

        def step(whole: Any = whole, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            hidden = whole(source, real, target).hidden.flatten(0, 1)
            loss = label_smoothed_cross_entropy(hidden, whole.output.weight, whole.output.bias, target.flatten(), 0.1)
            (loss.smoothed / loss.tokens).backward()
            optimizer.step()

        steps[name] = step
    yield from against("multihead", fastest(steps), "training", f"{length} tokens on each side")


def half_padding(shorter: int) -> Iterator[Figure]:
    """Measure the core, forward and backward, of a batch that is half padding and of one without padding."""
    batch, length = 8, 2048 // shorter
    lengths = {
        "full": torch.full((batch,), length),
        "each sentence half": torch.full((batch,), length // 2),
        "every other sentence short": torch.tensor([length - 32, 32]).repeat(batch // 2),
    }
    for name, causal in itertools.product(PATTERNS, (False, True)):
        pattern = PATTERNS[name](k=K, length_ratio=1.0)
        steps = {way: core(pattern, length, of, causal, True) for way, of in lengths.items()}
        case = f"{batch} sentences of {length} positions, {name}{', causal' if causal else ''}"
        yield from against("full", fastest(steps), "half_padding", case)


def ragged(shorter: int) -> Iterator[Figure]:
    """Measure the automatically chosen core for n / 2 to n positions, against dense attention with the same padding."""
    for batch, longest in itertools.product((1, 8, 64), (32, 64, 128, 256, 512)):
        length = longest // shorter
        lengths = torch.randint(length // 2, length + 1, (batch,))
        for causal, both in itertools.product((False, True), repeat=2):
            patterns = {"dense": FullPattern()} | {name: PATTERNS[name](k=16, length_ratio=1.0) for name in PATTERNS}
            steps = {name: core(one, length, lengths, causal, both) for name, one in patterns.items()}
            passes = "forward and backward" if both else "forward"
            case = f"{batch} x {length}, {passes}{', causal' if causal else ''}"
            yield from against("dense", fastest(steps, seconds=0.3), "ragged", case)


def parts(shorter: int) -> Iterator[Figure]:
    """Measure a layer whose score or dropout excludes the fused kernel, forward and backward: blocks and dense."""
    others = {"additive": ["score=additive"], "dropout": ["attention.dropout=0.1"]}
    for (why, overrides), name, k in itertools.product(others.items(), PATTERNS, (4, 16)):
        for longest in (64, 96, 128, 192, 256, 384, 512):
            length = longest // shorter
            x = torch.randn(1, length, 256)
            steps = {}
            for way, start in (("dense", sys.maxsize), ("blocks", 1)):
                one = build_attention(name, f"pattern.k={k}", *overrides, dim=256, num_heads=4).train()
                chosen_from = one.attention.pattern.blocks_from
                one.attention.pattern.fused_from = sys.maxsize
                one.attention.pattern.blocks_from = start
                steps[way] = both_ways(lambda x, one=one: one(x).context, x)
            case = f"{why}, {name}, k = {k}, {length} positions"
            chosen = "chosen" if length >= chosen_from else "not chosen"
            yield from against("dense", fastest(steps, seconds=0.3), "parts", f"{case}, {chosen}")


SECTIONS = {
    "layer": layer, "training": training, "half_padding": half_padding, "ragged": ragged, "parts": parts,
}  # fmt: skip


def model(attention: str, *overrides: str) -> Any:
    """A Transformer whose self-attention is this, and whose decoder reads the source by full attention."""
    chosen = [
        "model=transformer",
        f"attention={attention}",
        f"model.source_vocab_size={VOCABULARY}",
        f"model.target_vocab_size={VOCABULARY}",
        "model.encoder.dim=256",
        "model.decoder.dim=256",
        "model.embedding_dim=256",
        "model.encoder.dropout=0",
        "model.decoder.dropout=0",
        *overrides,
    ]
    if attention in PATTERNS:
        chosen.append(f"attention.pattern.k={K}")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        node = compose("train", chosen).model
    return instantiate(OmegaConf.to_container(node, resolve=True), _convert_="all")


def core(pattern: Pattern, length: int, lengths: Tensor, causal: bool, both: bool) -> Step:
    shape = (len(lengths), 8, length, 64)
    query, keys, values = (torch.randn(shape) for _ in range(3))
    mask = torch.arange(length) < lengths[:, None]

    def attend(query: Tensor) -> Any:
        return fused_attention(pattern, query, keys, values, mask, causal=causal, rows_match_keys=True)

    def forward() -> None:
        with torch.no_grad():
            attend(query / 8)

    return both_ways(attend, query / 8, keys, values) if both else forward


def both_ways(of: Callable[[Tensor], Tensor], x: Tensor, *others: Tensor) -> Step:
    """Return a step of forward and backward, with gradients of `x`, the other tensors and the weights."""
    for tensor in (x, *others):
        tensor.requires_grad_()

    def step() -> None:
        of(x).sum().backward()

    return step


def against(dense: str, seconds: dict[str, float], section: str, case: str) -> Iterator[Figure]:
    for way, took in seconds.items():
        if way != dense:
            yield Figure(section, case, way, took, seconds[dense])
            print(f"{section}: {case}: {way}: {seconds[dense] / took:.2f} x", flush=True)


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help=f"divide all lengths by {SMALL}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    keep_freed_memory()  # as train.py does
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "torch": torch.__version__,
        "processor": processor(),
        "commit": commit(),
        "threads": options.threads,
        "columns": Figure._fields,
    }
    figures = []
    for name in options.sections:
        figures += SECTIONS[name](SMALL if options.small else 1)
        lines = ",\n".join(json.dumps(figure) for figure in figures)
        options.output.write_text(f'{{"about": {json.dumps(about)}, "figures": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
