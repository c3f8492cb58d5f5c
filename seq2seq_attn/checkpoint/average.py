"""Average the weights of checkpoints: `seq2seq-attn average RUN --last 5 --output average.ckpt`.

Vaswani et al. 2017, 6.1, average the last 5 or 20. The result translates and is evaluated as any checkpoint does, but
it holds no state of an optimizer, so no run resumes from it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq_attn.checkpoint.checkpoint_file import corpus_of, write_checkpoint
from seq2seq_attn.checkpoint.load import (
    LANGUAGES,
    check_saved_options,
    find_checkpoint,
    read_checkpoint,
    read_tokenizer,
)
from seq2seq_attn.checkpoint.resume import read_recorded
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import check_writable
from seq2seq_attn.logger.csv_logger import read_rows

KEPT = ("format", "config", "tokenizer")  # of the first checkpoint
COMPARED = LANGUAGES | {"model": dict, "init_from": dict | None}  # options, and their types


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", help=".ckpt files, or one run folder with --last or --best")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--last", type=int, metavar="N", help="the last N of the run")
    choice.add_argument(
        "--best", type=int, metavar="N", help="those N of the run that were best by its monitored figure"
    )
    parser.add_argument("--output", type=Path, required=True, help="the .ckpt file to write")
    options = parser.parse_args(arguments)
    if options.output.exists():
        raise UserError(f"{options.output} is there already; give a new file, or delete it")
    check_writable(options.output, "give another --output")
    files = chosen(options.paths, options.last, options.best)
    average = averaged(files)
    write_checkpoint(average, options.output, way_out="give another --output, or make room")
    print(f"{options.output} is the average of", *files, sep="\n  ")


def chosen(paths: list[str], last: int | None, best: int | None) -> list[Path]:
    """Return the files to average, those of a run in the order of their steps.

    Raises:
        UserError: if they are fewer than two, or fewer than asked for.
    """
    if last is None and best is None:
        files = [find_checkpoint(path) for path in paths]
        if len({file.resolve() for file in files}) < max(2, len(files)):
            raise UserError("an average is of two files at least, all different; give more, or RUN --last N")
        return files
    if missing := next((path for path in paths if not Path(path).exists()), None):
        raise UserError(f"{missing} does not exist; give a run folder")
    if len(paths) != 1 or not Path(paths[0]).is_dir():
        raise UserError(f"--last and --best choose from one run folder, got {' '.join(paths)}")
    saved = validated(Path(paths[0]))
    if not saved:
        raise UserError(
            f"{paths[0]} has no checkpoint of a validation, and --last and --best choose from those; name the files to "
            "average instead"
        )
    ranks = {step: float(step) if best is None else score for step, (_, score) in saved.items()}
    count = last if best is None else best
    assert count is not None
    if not 2 <= count <= len(ranks):
        raise UserError(
            f"--{'best' if last is None else 'last'} {count} is not possible: {paths[0]} has {len(ranks)} checkpoints "
            "of different validations, and an average is of two at least; a run keeps its last five with "
            "callback.history.save_top_k=5, and its best five with callback.best_checkpoints.save_top_k=5"
        )
    steps = sorted(sorted(ranks, key=ranks.__getitem__)[-count:])
    warn_of_lost(Path(paths[0]), saved, min(ranks[step] for step in steps), count, by_score=best is not None)
    return [saved[step][0] for step in steps]


def warn_of_lost(run: Path, saved: Collection[int], lowest: float, count: int, *, by_score: bool) -> None:
    """Warn of validations that belong to an average, as metrics.csv has them, but have no checkpoint.

    Args:
        saved: the steps of all checkpoints. lowest: the step, or the score, of the first or worst that is chosen.
        by_score: whether the best are averaged, and not the last.
    """
    if not (run / "config.yaml").is_file():
        return
    config = read_recorded(run / "config.yaml")
    monitor = config.get("monitor", "val/bleu")
    rows = [row for row in read_rows(run / "metrics.csv") if monitor in row]
    scores = {int(row["step"]) + 1: score_of(row[monitor], config) for row in rows}
    ranks = {step: score if by_score else float(step) for step, score in scores.items()}
    # a validation within an update is logged at that update, and its checkpoint has the number of those before
    lost = [
        step
        for step in sorted(ranks, key=ranks.__getitem__)[-count:]
        if ranks[step] > lowest and {step, step - 1}.isdisjoint(saved)
    ]
    if lost:
        which, option = ("best", "best_checkpoints") if by_score else ("last", "history")
        print(
            f"{run} has no checkpoint of some of its {which} {count} validations (after step "
            f"{', '.join(map(str, sorted(lost)))}), so this is an average of others; a run keeps them with "
            f"callback.{option}.save_top_k={count}",
            file=sys.stderr,
        )


def validated(run: Path) -> dict[int, tuple[Path, float]]:
    """Return a checkpoint of each step at which the run was validated, and its score: a higher one is better.

    Averages are left out, and so is what was saved by the clock or at a signal: `--last N` is the average of the last N
    validations.
    """
    folder = run / "checkpoints" if (run / "checkpoints").is_dir() else run
    scored_files: dict[int, tuple[Path, float]] = {}
    for file in sorted(folder.glob("*.ckpt")):
        checkpoint = read_checkpoint(file)
        state = checkpoint.get("resume")
        if state is None:
            continue
        try:
            step, config = checkpoint["global_step"], checkpoint["config"]
            if state["validated_step"] == step:
                score = score_of(state["metrics"][config.get("monitor", "val/bleu")], config)
                scored_files.setdefault(step, (file, score))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{file} has a damaged state of its training ({error!r}); name the files to average instead"
            ) from error
    return scored_files


def score_of(figure: Any, config: dict[str, Any]) -> float:
    """Return the monitored figure, or its negative where less is better; one that is no number is the worst."""
    score = -float(figure) if config.get("monitor_mode") == "min" else float(figure)
    return -math.inf if math.isnan(score) else score


def averaged(files: list[Path]) -> dict[str, Any]:
    """Return a checkpoint with the mean of the weights, taken in float64; whole numbers are those of the last.

    Raises:
        UserError: if models or tokenizers differ.
    """
    first = read_averaged(files[0])
    totals, starts = {name: added(None, tensor) for name, tensor in first["state_dict"].items()}, {start_of(first)}
    corpora = {corpus_of(first)}
    for file in files[1:]:
        other = read_averaged(file)
        check_alike(files[0], first, file, other)
        starts.add(start_of(other))
        corpora.add(corpus_of(other))
        totals = {name: added(totals[name], tensor) for name, tensor in other["state_dict"].items()}
    if len(starts) > 1:
        print(
            f"these runs began with different weights ({', '.join(sorted(starts))}), and an average of such models "
            "translates badly; average checkpoints of one run, or of runs that were fine-tuned from one model",
            file=sys.stderr,
        )
    means: dict[str, Tensor] = {}
    tied: dict[tuple[int, torch.Size], Tensor] = {}  # written once, as it was
    for name, like in first["state_dict"].items():
        mean = (totals[name] / len(files)).to(like.dtype) if like.is_floating_point() else totals[name]
        means[name] = tied.setdefault((like.data_ptr(), like.shape), mean)
    corpus = corpora.pop() if len(corpora) == 1 else None
    average = {"state_dict": means, "averaged": [str(file) for file in files], "corpus": corpus}
    return {key: first[key] for key in KEPT} | average


def read_averaged(file: Path) -> dict[str, Any]:
    """Return a checkpoint with the options by which those of an average are compared."""
    checkpoint = read_checkpoint(file)
    check_saved_options(checkpoint["config"], COMPARED, file)
    return checkpoint


def start_of(checkpoint: dict[str, Any]) -> str:
    """Return what the first weights of a run are a function of."""
    config = checkpoint["config"]
    parent = (config.get("init_from") or {}).get("run")
    return f"seed={config.get('seed')}" if parent is None else f"init_from.run={parent}"


def added(total: Tensor | None, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.double() if total is None else total + tensor.double()


def check_alike(a: Path, first: dict[str, Any], b: Path, other: dict[str, Any]) -> None:
    fingerprints = {read_tokenizer(c["tokenizer"], file).fingerprint for file, c in ((a, first), (b, other))}
    if len(fingerprints) != 1:
        raise UserError(f"{a} and {b} have different tokenizers; give checkpoints of one run")
    directions = {
        f"{data['source_language']} to {data['target_language']}"
        for data in (first["config"]["data"], other["config"]["data"])
    }
    if len(directions) != 1:
        raise UserError(f"{a} and {b} translate {' and '.join(sorted(directions))}; give checkpoints of one run")
    if first["config"]["model"] != other["config"]["model"]:
        raise UserError(f"{a} and {b} hold models of different options; give checkpoints of one run")
    if shapes(first["state_dict"]) != shapes(other["state_dict"]):
        raise UserError(f"{a} and {b} hold weights of different names or shapes; give checkpoints of one run")


def shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
