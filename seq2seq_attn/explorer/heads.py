"""What each head of a model does over many pairs, and what it is worth: `seq2seq-attn heads RUN pairs.tsv`.

The model reads each pair, its target given. Of the weights of each head the command reports the mean entropy, the
largest weight of a row (confidence; the end token counts, which Voita et al. leave out), and the shares near the
diagonal, on the previous token and on the sink: the end token of the source, or the begin token of the target. Then
each head is knocked out alone, its context being 0, and the loss measured again: how much it rises is what the head is
worth while all others are there. The rises of two heads do not add up. Michel et al. 2019, arXiv:1905.10650; Voita et
al. 2019, arXiv:1905.09418.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.checkpoint.load import check_saved_options
from seq2seq_attn.comparison.page import check_page
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.explorer.head_worth import FIGURES, Head, Measured, measure, read_pairs
from seq2seq_attn.explorer.heads_page import heads_page
from seq2seq_attn.files import check_beside, replacing
from seq2seq_attn.inference.models import load_models
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import new_table, plain_console

SHOWN = 10  # heads in the terminal
COLUMNS = ("slot", "head", "rise", "error", *FIGURES)


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("pairs", nargs="+", help="a file of tab-separated pairs, or line-aligned SOURCE and TARGET")
    parser.add_argument("--output", type=Path, default=Path("heads.html"), help="the page; .tsv is written beside it")
    parser.add_argument("--most", type=int, default=500, help="pairs, evenly spread over the file; 500 if not given")
    parser.add_argument(
        "--change", choices=("knock_out", "uniform", "none"), default="knock_out",
        help="knock_out: the head has no effect; uniform: its weights are equal; none: no loss is measured",
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
    if given.num_threads is not None and given.num_threads < 1:
        parser.error(f"--num-threads {given.num_threads} is not enough; give 1 or more")
    table = given.output.with_suffix(".tsv")
    check_beside(table, re.compile(r"\A" + "\t".join(COLUMNS)), given.output)
    check_page(given.output)
    if given.num_threads:
        torch.set_num_threads(given.num_threads)
    models = load_models([given.run], given.device, given.trust)
    check_saved_options(models.config, {"batch_tokens": int}, models.files[0])
    pairs = read_pairs(models, [str(given_path(path, "pairs")) for path in given.pairs], given.most)
    measured = measure(models, pairs, None if given.change == "none" else given.change)
    write(measured, given.run, given.output, table)
    print_heads(measured)
    print(f"wrote {given.output} and {table}")


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
        stream.write(heads_page(measured, run).encode())
    lines = ["\t".join(COLUMNS)]
    for slot, head, rise, error, figures in measured.heads:
        named = [("rise", rise), ("error", error), *((name, figures.get(name, math.nan)) for name in FIGURES)]
        numbers = (math.nan if one == "previous" and slot.startswith("cross/") else number for one, number in named)
        cells = ("" if math.isnan(number) else f"{number:.6g}" for number in numbers)
        lines.append("\t".join([slot, "all" if head is None else str(head), *cells]))
    with replacing(table) as stream:
        stream.write(("\n".join(lines) + "\n").encode())
