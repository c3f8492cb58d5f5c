"""What each head of a model does over many pairs, and what it is worth: `seq2seq-attn heads RUN pairs.tsv`.

The model reads each pair, its target given. Of the weights of each head the command reports the mean entropy, the
largest weight of a row (confidence), and the shares near the diagonal, on the previous token and on the sink: the end
token of the source, or the begin token of the target. Then each head is knocked out alone, its context being 0, and the
loss measured again: how much it rises is what the head is worth while all others are there. The rises of two heads do
not add up. Michel et al. 2019, arXiv:1905.10650; Voita et al. 2019, arXiv:1905.09418.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.head_summary import confidences, summaries
from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.checkpoint.load import check_saved_options
from seq2seq_attn.comparison.page import check_page
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.evaluation.pair_log_prob import encode_pairs, read_given, score_encoded
from seq2seq_attn.explorer.heads_page import heads_page
from seq2seq_attn.explorer.intervention import Change, Intervention, attention_layers, intervened
from seq2seq_attn.files import check_beside, replacing
from seq2seq_attn.inference.lines import line_count
from seq2seq_attn.inference.models import Models, load_models
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import new_table, plain_console

FIGURES = ("entropy", "confidence", "diagonal", "previous", "sink")
SHOWN = 10  # heads in the terminal
COLUMNS = ("slot", "head", "rise", "error", *FIGURES)


class Head(NamedTuple):
    """A head, or all heads of a slot (None), which have no figures of their own.

    Attributes:
        rise: of the loss without it, in nats for each target token; NaN if it was not measured.
        error: half of the 95 % interval of the rise over the pairs.
        figures: means over the pairs, by name.
    """

    slot: str
    head: int | None
    rise: float
    error: float
    figures: dict[str, float]


class Pairs(NamedTuple):
    """Encoded pairs."""

    sources: list[list[int]]
    targets: list[list[int]]


class Measured(NamedTuple):
    """All heads of a model, in the order of its slots, and the loss of the whole model in nats for each token."""

    heads: list[Head]
    loss: float
    pairs: int
    tokens: int
    change: Change | None


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("pairs", nargs="+", help="a file of tab-separated pairs, or line-aligned SOURCE and TARGET")
    parser.add_argument("--output", type=Path, default=Path("heads.html"), help="the page; .tsv is written beside it")
    parser.add_argument("--most", type=int, default=500, help="pairs, evenly spread over the file; 500 if not given")
    parser.add_argument(
        "--change", choices=("knock_out", "uniform", "none"), default="knock_out",
        help="what is done to a head: no effect, equal weights, or nothing, which measures no loss",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    parser.add_argument("--num-threads", type=int, help="CPU threads of torch; torch's own choice if not given")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    if given.output.suffix != ".html":
        parser.error(f"--output {given.output} does not end in .html; give heads.html, and heads.tsv is written beside")
    if given.most < 2:
        parser.error(f"--most {given.most} pairs have no spread; give 2 or more")
    if len(given.pairs) > 2:
        parser.error(f"{len(given.pairs)} files of pairs; give one file of pairs, or SOURCE and TARGET")
    table = given.output.with_suffix(".tsv")
    check_beside(table, re.compile("\t".join(COLUMNS)), given.output)
    check_page(given.output)
    if given.num_threads:
        torch.set_num_threads(given.num_threads)
    models = load_models([given.run], given.device, given.trust)
    check_saved_options(models.config, {"batch_tokens": int}, models.files[0])
    pairs = read_pairs(models, [str(given_path(path, "pairs")) for path in given.pairs], given.most)
    measured = measure(models, pairs, None if given.change == "none" else given.change)
    print_heads(measured)
    write(measured, given.run, given.output, table)


def read_pairs(models: Models, files: list[str], most: int) -> Pairs:
    """Return at most this many encoded pairs, evenly spread over the files."""
    given = list(read_given(files, one_sided=not models.model.reads_source))
    if len(given) < 2:
        raise UserError(f"{files[0]} has {len(given)} pairs, and their spread is measured; give more")
    number = min(most, len(given))
    return Pairs(*encode_pairs(models, [given[row * len(given) // number] for row in range(number)]))


@torch.inference_mode()
def measure(models: Models, pairs: Pairs, change: Change | None) -> Measured:
    """Return the figures of all heads, and how the loss rises with this change of each."""
    model = models.members[0].to(models.device)
    layers = attention_layers(model)
    changed = [(slot, head) for slot, layer in layers.items() for head in (*range(layer.num_heads), None)]
    steps = len(pairs.sources) + (1 + len(changed)) * (change is not None)
    with line_count(steps, shown=sys.stderr.isatty(), counted="passes") as advance:
        figures = mean_figures(models, model, pairs, advance)
        loss = token_losses(models, pairs)
        tokens = np.array([len(target) + 1 for target in pairs.targets])
        heads = []
        for slot, head in changed:
            rise = error = math.nan
            if change is not None:
                with intervened(model, [Intervention(change, slot, head)]):
                    rise, error = ratio(token_losses(models, pairs) - loss, tokens)
                advance(1)
            heads.append(Head(slot, head, rise, error, {} if head is None else figures[slot][head]))
    return Measured(heads, float(loss.sum() / tokens.sum()), len(tokens), int(tokens.sum()), change)


def mean_figures(
    models: Models, model: EncoderDecoder, pairs: Pairs, advance: Callable[[int], None]
) -> dict[str, list[dict[str, float]]]:
    """Return by slot the figures of each head, means over the pairs."""
    sums: dict[str, np.ndarray] = {}
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        for slot, weights, columns, _ in attention_along(model, models.tokenizer, source, target):
            tensor = torch.from_numpy(weights)
            found = summaries(tensor, slot.partition("/")[0], [0] * len(columns), [""])
            for one, confidence in zip(found, confidences(tensor).tolist(), strict=True):
                one["confidence"] = confidence
            sums[slot] = sums.get(slot, 0) + np.array([[one[name] for name in FIGURES] for one in found])
        advance(1)
    return {
        slot: [dict(zip(FIGURES, (row / len(pairs.sources)).tolist(), strict=True)) for row in rows]
        for slot, rows in sums.items()
    }


def token_losses(models: Models, pairs: Pairs) -> Float64[np.ndarray, " pairs"]:
    """Return the negative log-probability of each target."""
    scores = score_encoded(models, pairs.sources, pairs.targets, models.config["batch_tokens"])
    return np.array([-score.log_prob for score in scores])


def ratio(sums: np.ndarray, tokens: np.ndarray) -> tuple[float, float]:
    """Return the mean for each token, and half of its 95 % interval: that of a ratio, with the pairs as the sample."""
    mean = sums.sum() / tokens.sum()
    residuals = sums - mean * tokens
    spread = math.sqrt((residuals**2).sum() * len(sums) / (len(sums) - 1)) / tokens.sum()
    return float(mean), float(1.96 * spread)


def print_heads(measured: Measured) -> None:
    """Print the loss and, if heads were changed, what the layers and the most valuable heads are worth."""
    console = plain_console()
    say = partial(console.print, highlight=False)
    say(f"{measured.pairs:,} pairs, {measured.tokens:,} target tokens, loss {measured.loss:.4f} nats a token")
    if measured.change is None:
        return
    layers = [head for head in measured.heads if head.head is None]
    single = [head for head in measured.heads if head.head is not None]
    columns = ["attention", "rise of the loss", "95 % interval, ±"]
    console.print(new_table(columns, [[one.slot, *rise_and_error(one)] for one in layers], "A layer without any head"))
    best = sorted(single, key=lambda head: -head.rise)[:SHOWN]
    rows = [[f"{one.slot}, head {one.head}", *rise_and_error(one)] for one in best]
    console.print(new_table(columns, rows, f"Without a single head: the {len(best)} of {len(single)} that matter most"))


def rise_and_error(head: Head) -> tuple[str, str]:
    return f"{head.rise:+.4f}".replace("-", "−"), f"{head.error:.4f}"


def write(measured: Measured, run: str, page: Path, table: Path) -> None:
    """Write the page and the table of its figures."""
    with replacing(page) as stream:
        stream.write(heads_page(measured.heads, measured.loss, measured.pairs, measured.change, run).encode())
    lines = ["\t".join(COLUMNS)]
    for slot, head, rise, error, figures in measured.heads:
        numbers = (rise, error, *(figures.get(name, math.nan) for name in FIGURES))
        cells = ("" if math.isnan(number) else f"{number:.6g}" for number in numbers)
        lines.append("\t".join([slot, "all" if head is None else str(head), *cells]))
    with replacing(table) as stream:
        stream.write(("\n".join(lines) + "\n").encode())
    print(f"wrote {page} and {table}")
