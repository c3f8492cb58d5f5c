"""Every attention in each of its homes on captions of Multi30k: `python -m scripts.benchmarks.homes run`.

A home is a place of a model that takes an attention: the attention to the source of an RNN, of Luong's RNN and of a
ConvS2S, and the self-attention and the cross-attention of a Transformer. All models of a home have as many parameters
as the one with the home's usual attention, or as near as one width allows. Every run is one of train.py on one thread,
with 8,000 captions and to the end of its schedule. The queue may be killed at any time: the same command resumes it,
and no finished run is repeated. rows.jsonl in the folder of the runs has a line for each finished run, and
measures.jsonl for each that is measured; the page needs nothing else. On another machine `restore` brings those of the
committed page back, without the runs themselves.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from scripts.benchmarks.home_runs import (
    CAPTIONS,
    CPU,
    HOMES,
    MEASURES,
    ROOT,
    ROWS,
    SEEDS,
    Job,
    RefusedError,
    command,
    first_jobs,
    is_lost,
    later_jobs,
    pack,
    read_rows,
    restore_rows,
    rows_of,
    unfinished,
    write_rows,
)
from scripts.benchmarks.processor import processor
from scripts.benchmarks.write_homes_page import write_page
from scripts.conf_files import presets
from seq2seq_attn.alignment.attention_links import Heads, attended_links, word_maps
from seq2seq_attn.alignment.gold import AlignedPair, agreement
from seq2seq_attn.alignment.tatoeba_gold import tatoeba_pairs
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.checkpoint.load import find_checkpoint, load
from seq2seq_attn.comparison.export_hub import command_of
from seq2seq_attn.comparison.read import read_runs
from seq2seq_attn.comparison.significance import count_sentences
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.paths import quoted

AUTOSAVES = ("last.ckpt", "previous.ckpt")
LOG = "output.txt"
ATTEMPTS = "attempts.txt"
PAGE_FILE = ROOT / "docs/benchmarks/homes.md"
HTML_FILE = ROOT / "docs/attentions.html"
CURVE = "val/bleu"
PAIR = ("A black dog is running through the snow.", "Un chien noir court dans la neige.")  # whose maps are drawn
WARM_UP = 64  # sentences that are translated before the time counts


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = add_run(commands, run_queue)
    run.add_argument("--data", type=Path, required=True, help="folder with the folder multi30k")
    run.add_argument("--presets", nargs="+", choices=presets(), metavar="PRESET", help="these alone; default: all")
    measure = commands.add_parser(
        "measure", help="measure what has been trained: alone on the machine, run nothing else"
    )
    measure.add_argument("--data", type=Path, required=True, help="folder with the file tatoeba/fra.txt")
    measure.add_argument("--updates", type=int, default=60, help="training steps that are timed (%(default)s)")
    measure.set_defaults(act=measure_runs)
    page = commands.add_parser("page", help="write the page of what has been trained")
    page.add_argument("--output", type=Path, default=PAGE_FILE, help="%(default)s")
    page.add_argument("--html", type=Path, default=HTML_FILE, help="the page with sortable tables (%(default)s)")
    page.add_argument("--resamples", type=int, default=1000, help="test sets drawn for intervals (%(default)s)")
    page.set_defaults(act=lambda given: write_page(given.runs, given.home, given.output, given.html, given.resamples))
    for choice in commands.choices.values():
        choice.add_argument("--home", nargs="+", default=list(HOMES), choices=list(HOMES), metavar="HOME")
    add_restore(commands, PAGE_FILE, Job._fields)
    for choice in commands.choices.values():
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    return parser.parse_args(arguments)


def add_run(commands: Any, act: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
    """Add the command `run`, with the options that all queues have."""
    run: argparse.ArgumentParser = commands.add_parser("run", help="train what has not been trained")
    run.add_argument("--jobs", type=int, default=1, help="simultaneous runs, each on one thread (%(default)s)")
    run.add_argument("--override", nargs="*", default=[], help="overrides of train.py for every run")
    run.set_defaults(act=act)
    return run


def add_restore(commands: Any, page: Path, fields: Sequence[str]) -> argparse.ArgumentParser:
    """Add the command `restore`, for the rows of a page, whose jobs have these fields."""
    restored: argparse.ArgumentParser = commands.add_parser(
        "restore", help="let the runs of the committed page count as finished elsewhere"
    )
    restored.add_argument("--page", type=Path, default=page, help="%(default)s")
    restored.set_defaults(act=lambda given: restore(given.page, given.runs, fields))
    return restored


def run_queue(options: argparse.Namespace) -> None:
    """Run all jobs that have no row: one seed of everything, then the other seeds of those that get them."""
    if not (options.data / "multi30k").is_dir():
        raise UserError(f"--data {options.data} has no folder multi30k; give the folder that contains it")
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        cut_captions(options.data / "multi30k", options.runs / "captions", CAPTIONS)
        first = chosen(first_jobs(options.home), options.presets)
        failed = run_jobs(run_jobs(first, options, run_job), options, run_job)  # those that failed get a second try
        later = chosen(later_jobs(options.home, read_rows(options.runs / ROWS)), options.presets)
        failed += run_jobs(run_jobs(later, options, run_job), options, run_job)
    if failed:
        sys.exit(failures(failed))


def chosen(jobs: Iterable[Job], names: Sequence[str] | None) -> list[Job]:
    """Return the jobs of the named presets; None names all."""
    return [job for job in jobs if names is None or job.preset in names]


@contextmanager
def alone(runs: Path) -> Iterator[None]:
    """Hold the lock of a folder of runs.

    Raises:
        UserError: if another process works there.
    """
    try:
        with FileLock(runs / "queue.lock", timeout=0):
            yield
    except Timeout as error:
        raise UserError(f"another queue is at work in {runs}; end it, or give another folder of --runs") from error


def restore(page: Path, runs: Path, fields: Sequence[str]) -> None:
    """Let the rows and measures of a committed page count as finished in a folder of runs, as `restore_rows` does."""
    runs.mkdir(parents=True, exist_ok=True)
    with alone(runs):
        restore_rows(page, runs, fields)


def cut_captions(source: Path, target: Path, captions: int) -> None:
    """Copy the captions, of the training set the first ones only."""
    target.mkdir(exist_ok=True)
    for file in source.glob("*.gz"):
        if (target / file.name).is_file():
            continue
        with gzip.open(file) as lines, replacing(target / file.name) as stream, gzip.open(stream, "wb") as cut:
            cut.writelines(islice(lines, captions) if file.name.startswith("train.") else lines)


def run_jobs(
    jobs: Iterable[Any], options: argparse.Namespace, run: Callable[[Any, argparse.Namespace], dict[str, Any] | None]
) -> list[Any]:
    """Run those that have no row; return those that failed. Their output is in their folders.

    Args:
        jobs: tuples such as `Job`, whose fields a row has.
        run: trains a job, as `run_job` does.
    """
    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs} runs nothing; give 1 or more")
    jobs = list(jobs)
    left = unfinished(jobs, rows_of(options.runs / ROWS, jobs[0]._fields) if jobs else [])
    overrides = command_of(["train.py", *options.override]).removeprefix("python train.py").strip()
    failed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run, job, options): job for job in left}
        try:
            for number, future in enumerate(as_completed(running), 1):
                job, row = running[future], future.result()
                what = "failed" if row is None else row.get("refused") or figure_of(row)
                print(f"{number} of {len(left)}: {job.folder(Path()).as_posix()}: {what}", flush=True)
                if row is None:
                    failed.append(job)
                else:
                    row |= {"overrides": overrides} if overrides else {}
                    write_rows(options.runs / ROWS, [*read_rows(options.runs / ROWS), row])
                    for name in AUTOSAVES:
                        (job.folder(options.runs) / "checkpoints" / name).unlink(missing_ok=True)
        except BaseException:  # an interruption, a full disk, a mistake of the queue itself: start no other run
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def failures(failed: Sequence[Any]) -> str:
    """Return the message about the jobs that failed."""
    names = ", ".join(job.folder(Path()).as_posix() for job in failed)
    return f"{len(failed)} runs failed: {names}; repeat the command to run them again"


def figure_of(row: dict[str, Any]) -> str:
    return f"BLEU {row['bleu']:.2f}" if "bleu" in row else "finished"  # a pre-training has no translations


def run_job(job: Job, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a job; return its row, or None if it failed."""
    try:
        overrides = command(job)
    except RefusedError as refusal:
        return {**job._asdict(), "refused": str(refusal)}
    captions = (options.runs / "captions").resolve()
    row = trained_row(job, [*overrides, *options.override, f"data.path={quoted(captions)}"], options.runs)
    try:
        return row if row is None else {**row, **page_figures(job, job.folder(options.runs))}
    except UserError as error:
        print(f"{error}; to train it again, move its folder away", file=sys.stderr)
        return None


def page_figures(job: Job, folder: Path) -> dict[str, Any]:
    """Return what the page shows of a run beside its scores, so that it can be written where the run is not."""
    (run,), _ = read_runs([folder])
    return {
        "width": OmegaConf.select(OmegaConf.create(run.config), HOMES[job.home].widths[0]),
        "curve": [[int(step), round(score, 2)] for step, score in run.curve(CURVE)],
        "counts": pack(count_sentences(run).counts),
    }


def trained_row(job: Any, overrides: Sequence[str], runs: Path) -> dict[str, Any] | None:
    """Run or resume a job that has no results; return its row, or None if it failed."""
    folder = job.folder(runs)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "run.lock"):  # wait for a run that outlived its queue
        pass
    if not is_finished(folder):
        train([*overrides, f"hydra.run.dir={quoted(folder.resolve())}", "resume=auto"], folder)
    return row_of(job, folder) if is_finished(folder) else None


def is_finished(folder: Path) -> bool:
    """Return whether a run has left its results; a file that a full disk has cut counts as none."""
    try:
        json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True


def train(overrides: Sequence[str], folder: Path) -> None:
    """Run train.py; note that it started and, when it ends, its processor time."""
    with (folder / LOG).open("a", encoding="utf-8") as log, (folder / ATTEMPTS).open("a", encoding="utf-8") as attempts:
        print("started", file=attempts, flush=True)
        process = subprocess.Popen([sys.executable, "train.py", *overrides], cwd=ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        print(f"{usage.ru_utime + usage.ru_stime:.1f}", file=attempts)


def row_of(job: Any, folder: Path) -> dict[str, Any]:
    """Return the row of a finished run; one that no queue has started has no times, a pre-training no BLEU."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    config = OmegaConf.load(folder / "config.yaml")
    attempts = (folder / ATTEMPTS).read_text(encoding="utf-8").split() if (folder / ATTEMPTS).is_file() else []
    undisturbed = attempts.count("started") == 1
    device = provenance.get("device", CPU)
    on_cpu = device == CPU
    scores = ("bleu", "bleu_signature", "chrf", "chrf_signature", "loss")
    return {
        **job._asdict(),
        "commit": provenance.get("commit"),
        "parameters": results["num_parameters"],
        **{name: results[f"test/{name}"] for name in scores if f"test/{name}" in results},
        "entropy": results.get("attention_entropy"),
        "epochs": config.trainer.max_epochs,
        "updates": results["steps"],
        "minutes": round(results["train_seconds"] / 60, 1) if undisturbed else None,
        "processor_minutes": round(float(attempts[1]) / 60, 1)
        if on_cpu and undisturbed and len(attempts) > 1
        else None,
        "device": device,
        "folder": job.folder(Path()).as_posix(),
    }


def measure_runs(options: argparse.Namespace) -> None:
    """Measure every finished run that has not been measured: alignment of all, speed and memory of the first seed."""
    corpus = options.data / "tatoeba" / "fra.txt"
    if not corpus.is_file():
        raise UserError(f"--data {options.data} has no file tatoeba/fra.txt; give the folder that contains it")
    pairs = tatoeba_pairs(corpus)
    torch.set_num_threads(1)
    file = options.runs / MEASURES
    with alone(options.runs):
        measured = {(row["home"], row["preset"], row["seed"]) for row in read_rows(file)}
        for row in rows_of(options.runs / ROWS, Job._fields):
            job = Job(row["home"], row["preset"], row["seed"])
            folder = job.folder(options.runs)
            is_here = "refused" not in row and not is_lost(job, options.runs)  # not one of another machine
            if is_here and job.home in options.home and job not in measured:
                figures: dict[str, Any] = {"aer": error_rate(folder, pairs), "processor": processor()}
                if job.seed == SEEDS[0]:
                    figures |= {**costs(job, options), "map": drawn_map(job, folder)}
                write_rows(file, [*read_rows(file), {**job._asdict(), **figures}])


def error_rate(run: Path, pairs: list[AlignedPair]) -> float:
    """Return the alignment error rate of the mean of all heads, in percent."""
    loaded = load(str(find_checkpoint(str(run))))
    maps = word_maps(loaded.model, loaded.tokenizer, [(pair.source, pair.target) for pair in pairs], loaded.config)
    return agreement([attended_links(pair_maps, Heads(), Extraction()) for pair_maps in maps], pairs).error_rate


def drawn_map(job: Job, folder: Path) -> dict[str, Any] | None:
    """Return the weights of the home's last layer along a given translation, mean over the heads; None without any."""
    maps = Translator.load(folder, device="cpu").attention(*PAIR)
    kind = "encoder/" if job.home == "self" else "cross/"
    last = next((one for one in reversed(maps) if one.slot.startswith(kind)), None)
    if last is None:
        return None
    return {"rows": last.rows, "columns": last.columns, "weights": last.weights.mean(0).astype(float).round(2).tolist()}


def costs(job: Job, options: argparse.Namespace) -> dict[str, float]:
    """Return the speed and memory of a short training, and the speed of greedy search with the run's best weights."""
    captions = (options.runs / "captions").resolve()
    results = timed_training([*command(job), f"data.path={quoted(captions)}"], options.updates)
    with gzip.open(captions / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as lines:
        sources = lines.read().splitlines()
    translator = Translator.load(job.folder(options.runs))
    translator.translate(sources[:WARM_UP])
    start = time.perf_counter()
    translator.translate(sources)
    return {
        "tokens_per_second": results["tokens_per_second"],
        "peak_memory_bytes": results["peak_memory_bytes"],
        "decode_sentences_per_second": len(sources) / (time.perf_counter() - start),
    }


def timed_training(overrides: Sequence[str], updates: int) -> dict[str, Any]:
    """Return the results of a training of some updates without validation and test: its speed and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = [f"trainer.max_steps={updates}", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
        train([*overrides, *steps, f"hydra.run.dir={quoted(folder)}"], folder)
        if not is_finished(folder):
            *_, why = ["no output", *(folder / LOG).read_text(encoding="utf-8").split("\n")[:-1]]
            raise UserError(f"the timed training of {' '.join(overrides)} failed: {why}")
        results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        return results


if __name__ == "__main__":
    main()
