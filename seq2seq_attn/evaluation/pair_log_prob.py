"""Forced scoring: what a model holds of translations that are given, `python evaluate.py ckpt_path=RUN score=FILE`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra.utils import instantiate
from jaxtyping import Float64
from omegaconf import DictConfig
from rich.table import Table

from seq2seq_attn.checkpoint.load import check_saved_options
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.teacher_forcing import mean_loss, read_pairs
from seq2seq_attn.evaluation.trainer import build_trainer
from seq2seq_attn.inference.line_count import line_count
from seq2seq_attn.inference.lines import Line, count_lines, opened, read_lines
from seq2seq_attn.inference.models import READ, Models
from seq2seq_attn.inference.translator import CONTROL
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import plain_console
from seq2seq_attn.training.results import display_path

WINDOW = 4096  # pairs read ahead, so that those of one length meet in a batch


class GivenPair(NamedTuple):
    """A source, a translation of it, and where they stand, as in `pairs.tsv, line 7`."""

    position: str
    source: str
    target: str


class PairScore(NamedTuple):
    """The log-probability of a translation in nats, and its tokens, the end token among both."""

    log_prob: float
    tokens: int


def score(config: DictConfig, models: Models) -> dict[str, Any]:
    """Writes `scores.tsv`, line for line, and prints the sums, which it gives."""
    given = {"trainer.precision": config.precision, "batch_tokens": config.batch_tokens}
    left_open = {name: READ[name] for name, value in given.items() if not value}
    check_saved_options(models.config, left_open, models.files[0])
    precision = config.precision or models.config["trainer"]["precision"]
    plugin = build_trainer(models.device, precision).precision_plugin
    plugin.convert_module(models.model.to(models.device))
    batch_tokens = config.batch_tokens or models.config["batch_tokens"]
    named = [config.score] if isinstance(config.score, str) else list(config.score)
    files = [str(given_path(path, "score")) for path in named]
    file = Path(config.paths.run_dir) / "scores.tsv"
    part = file.with_suffix(".tsv.part")  # until it is whole
    part.parent.mkdir(parents=True, exist_ok=True)
    sums: dict[str, Any] = {"pairs": 0, "tokens": 0, "log_prob": 0.0}
    total = None if files[0].endswith(".gz") else count_lines(files[0]) if Path(files[0]).is_file() else None
    with (
        part.open("w", encoding="utf-8") as stream,
        line_count(total, shown=sys.stderr.isatty()) as advance,
        torch.inference_mode(),
        plugin.test_step_context(),
    ):
        pairs = read_given(files)
        while window := list(islice(pairs, WINDOW)):
            for found in score_pairs(models, window, batch_tokens):
                stream.write(f"{found.log_prob:.6f}\t{found.tokens}\t{found.log_prob / found.tokens:.6f}\n")
                sums["tokens"] += found.tokens
                sums["log_prob"] += found.log_prob
            sums["pairs"] += len(window)
            advance(len(window))
    if not sums["pairs"]:
        raise UserError(f"score={files[0]} is empty; give a file with a source and a translation on each line")
    part.replace(file)
    print_sums(file, sums)
    return sums


def score_pairs(models: Models, pairs: list[GivenPair], batch_tokens: int) -> list[PairScore]:
    """In the order of the pairs; batches are cut from pairs sorted by length."""
    tokenizer = models.tokenizer
    cleaning: Cleaning = instantiate(models.config["data"]["cleaning"], _convert_="all")
    sources, targets = (
        [cleaning.normalize_text(CONTROL.sub(" ", text)) for text in texts]
        for texts in ([pair.source for pair in pairs], [pair.target for pair in pairs])
    )
    source_ids, target_ids = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
    check_positions(models.model.max_length, pairs, source_ids, target_ids)
    sampler = TokenBatchSampler(
        np.array([len(ids) for ids in source_ids]),
        np.array([len(ids) for ids in target_ids]),
        batch_tokens=batch_tokens,
        shuffle=False,
        seed=0,
    )
    found = [PairScore(0.0, 0)] * len(pairs)
    for rows in sampler:
        log_probs = tokens_log_prob(models, [source_ids[row] for row in rows], [target_ids[row] for row in rows])
        for row, log_prob in zip(rows, log_probs.tolist(), strict=True):
            found[row] = PairScore(log_prob, len(target_ids[row]) + 1)
    return found


def tokens_log_prob(
    models: Models, sources: list[list[int]], targets: list[list[int]]
) -> Float64[torch.Tensor, "batch"]:
    """The log-probability of each target, its end token included, given its source."""
    tokenizer = models.tokenizer
    batch = collate_pairs(
        sources, targets, range(len(sources)), pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id
    ).to(models.device)
    loss = mean_loss(models.members, read_pairs(models.members, batch), batch)
    by_token = torch.zeros(batch.target_mask.shape, dtype=torch.float64, device=models.device)
    by_token[batch.target_mask] = -loss.token_nll.double()
    return by_token.sum(1)


def check_positions(
    max_length: int | None, pairs: list[GivenPair], sources: list[list[int]], targets: list[list[int]]
) -> None:
    """Unlike a source to translate, a pair is not cut: its score would be that of another pair."""
    if max_length is None:
        return
    for pair, source, target in zip(pairs, sources, targets, strict=True):
        longest = max(len(source), len(target)) + 1
        if longest > max_length:
            raise UserError(
                f"{pair.position}: {longest} tokens, and the model has positions for {max_length}; "
                "shorten or remove the line"
            )


def read_given(files: list[str]) -> Iterator[GivenPair]:
    """Pairs of one tab-separated file, or of two files in step; each plain or gz.

    Raises:
        UserError: naming file and line, for a line that is no pair.
    """
    if len(files) == 1:
        for line in read(files[0]):
            columns = line.text.split("\t")
            if len(columns) not in (2, 3):
                raise UserError(
                    f"{files[0]}, line {line.number}: {len(columns)} tab-separated column{'s' * (len(columns) > 1)} "
                    "instead of 2 or 3 (source, target, anything); mend or remove the line"
                )
            yield GivenPair(f"{files[0]}, line {line.number}", columns[0], columns[1])
        return
    if len(files) != 2:
        raise UserError(f"score names {len(files)} files; give score=FILE, or score=[SOURCE,TARGET]")
    for number, (source, target) in enumerate(zip_longest(*map(read, files)), 1):
        if source is None or target is None:
            short, long = files if source is None else reversed(files)
            raise UserError(
                f"{short} ends before line {number}, which {long} has; files in step need the same number of lines"
            )
        yield GivenPair(f"{files[0]} and {files[1]}, line {number}", source.text, target.text)


def read(file: str) -> Iterator[Line]:
    with opened("score", file) as stream:
        for line in read_lines(stream, file):
            if line.notes:
                what = line.notes[0].partition(";")[0]
                raise UserError(f"{file}, line {line.number}: {what}; mend or remove the line")
            yield line


def print_sums(file: Path, sums: dict[str, Any]) -> None:
    """What a newcomer compares: nats of a token, and the perplexity."""
    per_token = sums["log_prob"] / sums["tokens"]
    table = Table()
    table.add_column("result")
    table.add_column("value", justify="right")
    for name, value in {
        "pairs": f"{sums['pairs']:,}",
        "tokens, end tokens included": f"{sums['tokens']:,}",
        "log_prob, nats": f"{sums['log_prob']:,.2f}",
        "log_prob of a token": f"{per_token:.4f}",
        "perplexity": f"{math.exp(-per_token):,.2f}",
    }.items():
        table.add_row(name, value)
    console = plain_console()
    console.print(table)
    console.print("\nlog_prob, tokens, log_prob of a token, a line for a line:", highlight=False)
    console.print(display_path(file), highlight=False, soft_wrap=True)
