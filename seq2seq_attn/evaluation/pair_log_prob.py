"""Log-probabilities of given translations: `python evaluate.py ckpt_path=RUN score=FILE`."""

from __future__ import annotations

import json
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
from pytorch_lightning.plugins.precision import Precision

from seq2seq_attn.data.batch_sampler import Lengths, TokenBatchSampler
from seq2seq_attn.data.cleaning import CONTROL, Cleaning, cleaning_options
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.earlier import check_unrecorded, earlier_record, model_record
from seq2seq_attn.files import replacing
from seq2seq_attn.inference.lines import UTF_16_NOTE, Line, count_lines, line_count, opened, read_lines
from seq2seq_attn.inference.models import Models
from seq2seq_attn.inference.output import refuse_one_file, written
from seq2seq_attn.model.token_log_probs import token_log_probs
from seq2seq_attn.paths import display_path, given_path
from seq2seq_attn.text import new_table, plain_console

WINDOW = 4096  # pairs read ahead, which are sorted by length into batches


class GivenPair(NamedTuple):
    """A source, a translation of it, and where they are from, such as `pairs.tsv, line 7`."""

    location: str
    source: str
    target: str


class PairScore(NamedTuple):
    """The log-probability of a translation in nats, and its tokens, the end token among both."""

    log_prob: float
    tokens: int


def score(config: DictConfig, models: Models, precision: Precision) -> dict[str, Any]:
    """Write `scores.tsv`, a line for each pair, and the model to `scores.json`; print the sums and return them."""
    precision.convert_module(models.model.to(models.device))
    batch_tokens = config.batch_tokens or models.config["batch_tokens"]
    named = [config.score] if isinstance(config.score, str) else list(config.score)
    files = [str(given_path(path, "score")) for path in named]
    if len(files) not in (1, 2):
        raise UserError(f"score names {len(files)} files; give score=FILE, or score=[SOURCE,TARGET]")
    file = Path(config.paths.run_dir) / "scores.tsv"
    refuse_one_file([*(("score", given) for given in files), ("paths.run_dir", str(file))], {"score"})
    record = file.with_name("scores.json")
    if not earlier_record(record, models.files, "scores"):
        check_unrecorded([file], record)
    file.parent.mkdir(parents=True, exist_ok=True)
    sums: dict[str, Any] = {"pairs": 0, "tokens": 0, "log_prob": 0.0}
    shown = sys.stderr.isatty()
    with (
        written("paths.run_dir", str(file)) as stream,
        line_count(count_lines(files[0]) if shown else None, shown) as advance,
        torch.inference_mode(),
        precision.test_step_context(),
    ):
        pairs = read_given(files, one_sided=not models.model.reads_source)
        while window := list(islice(pairs, WINDOW)):
            for log_prob, tokens in score_pairs(models, window, batch_tokens):
                stream.write(f"{log_prob:.6f}\t{tokens}\t{log_prob / tokens:.6f}\n".encode())
                sums["tokens"] += tokens
                sums["log_prob"] += log_prob
            sums["pairs"] += len(window)
            advance(len(window))
        if not sums["pairs"]:
            raise UserError(f"score={files[0]} is empty; give a file with a source and a target on each line")
        with replacing(record) as described:  # before the scores have their name
            described.write((json.dumps(model_record(models.files), indent=2, ensure_ascii=False) + "\n").encode())
    print_sums(file, sums)
    return sums


def score_pairs(models: Models, pairs: list[GivenPair], batch_tokens: int) -> list[PairScore]:
    """Return scores in the order of the pairs."""
    return score_encoded(models, *encode_pairs(models, pairs), batch_tokens)


def encode_pairs(
    models: Models, pairs: list[GivenPair], most: int | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of sources and targets, normalized as the training data was; a language model reads no source.

    Args:
        most: the number of tokens to which both sides are cut; None: a pair that is too long for the model is refused.
    """
    tokenizer, reads_source = models.tokenizer, models.model.reads_source
    cleaning: Cleaning = instantiate(cleaning_options(models.config["data"]), _convert_="all")
    sources, targets = (
        encode([cleaning.normalize_text(CONTROL.sub(" ", text)) for text in texts])
        for encode, texts in (
            (tokenizer.encode_source, [pair.source if reads_source else "" for pair in pairs]),
            (tokenizer.encode_target, [pair.target for pair in pairs]),
        )
    )
    if most is None:
        check_lengths(models.model.max_length, pairs, sources, targets)
        return sources, targets
    return [ids[:most] for ids in sources], [ids[:most] for ids in targets]


def score_encoded(
    models: Models, sources: list[list[int]], targets: list[list[int]], batch_tokens: int
) -> list[PairScore]:
    """Return scores in the order of the pairs; batches are cut from pairs sorted by length.

    Raises:
        UserError: for a log-probability that is NaN, where the numbers of float16 overflow.
    """
    source_lengths, target_lengths = (np.array([len(ids) for ids in side]) for side in (sources, targets))
    lengths = Lengths(source_lengths, target_lengths)
    sampler = TokenBatchSampler([lengths], batch_tokens=batch_tokens, shuffle=False, seed=0)
    scores = [PairScore(0.0, 0)] * len(sources)
    for rows in sampler:
        log_probs = tokens_log_prob(models, [sources[row] for row in rows], [targets[row] for row in rows])
        if log_probs.isnan().any():
            raise UserError("the model's numbers overflow; use precision=bf16-mixed or 32-true, or another checkpoint")
        for row, log_prob in zip(rows, log_probs.tolist(), strict=True):
            scores[row] = PairScore(log_prob, len(targets[row]) + 1)
    return scores


def tokens_log_prob(
    models: Models, sources: list[list[int]], targets: list[list[int]]
) -> Float64[torch.Tensor, " batch"]:
    """Return the log-probability of each target, its end token included, given its source."""
    tokenizer = models.tokenizer
    batch = collate_pairs(
        sources, targets, range(len(sources)), pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id
    ).to(models.device)
    return token_log_probs(models.members, batch).sum(1)


def check_lengths(
    max_length: int | None, pairs: list[GivenPair], sources: list[list[int]], targets: list[list[int]]
) -> None:
    """Refuse a pair that is too long; unlike a source to translate it is not cut, which would score another pair."""
    for pair, source, target in zip(pairs, sources, targets, strict=True):
        longest = max(len(source), len(target)) + 1
        if max_length is not None and longest > max_length:
            raise UserError(
                f"{pair.location}: {longest} tokens, and the model has positions for {max_length}; "
                "shorten or remove the line"
            )


def read_given(files: list[str], one_sided: bool = False, option: str | None = "score") -> Iterator[GivenPair]:
    """Yield the pairs of one tab-separated file, or of two line-aligned files; each plain or gz.

    Args:
        one_sided: the model reads no source, so that a line may be a target alone.
        option: that names the files; None: they were typed without one.

    Raises:
        UserError: naming file and line, for a line that is no pair.
    """
    for number, lines in enumerate(zip_longest(*(read(file, option) for file in files)), 1):
        columns = [line.text for line in lines if line is not None]
        if len(columns) < len(files):
            short, long = files if lines[0] is None else reversed(files)
            raise UserError(
                f"{short} ends before line {number}, which {long} has; line-aligned files need the same number of lines"
            )
        if len(files) == 1:
            columns = columns[0].split("\t")
            if len(columns) == 1 and one_sided:
                columns = ["", *columns]
            if len(columns) not in (2, 3):
                raise UserError(
                    f"{files[0]}, line {number}: {len(columns)} tab-separated column{'s' * (len(columns) > 1)} "
                    "instead of 2 or 3 (source, target, anything); mend or remove the line"
                )
        yield GivenPair(f"{' and '.join(files)}, line {number}", columns[0], columns[1])


def read(file: str, option: str | None) -> Iterator[Line]:
    with opened(option, file) as stream:
        for line in read_lines(stream, file):
            if line.notes:
                what, _, way_out = line.notes[0].partition("; ")
                way_out = way_out if what == UTF_16_NOTE else "mend or remove the line"
                raise UserError(f"{file}, line {line.number}: {what}; {way_out}")
            yield line


def print_sums(file: Path, sums: dict[str, Any]) -> None:
    """Print the sums, their mean over tokens and the perplexity."""
    per_token = sums["log_prob"] / sums["tokens"]
    rows = {
        "lines": f"{sums['pairs']:,}",
        "tokens, end tokens included": f"{sums['tokens']:,}",
        "log_prob, nats": f"{sums['log_prob']:,.2f}",
        "log_prob of a token": f"{per_token:.4f}",
        "perplexity": f"{math.exp(-per_token):,.2f}",
    }
    console = plain_console()
    console.print(new_table(["result", "value"], rows.items()))
    console.print("\nlog_prob, tokens, log_prob of a token, for each line:", highlight=False)
    console.print(display_path(file), highlight=False, soft_wrap=True)
