"""Every attention in each of its homes on captions of Multi30k: `python -m scripts.benchmarks.homes run`.

A home is a place of a model that takes an attention: the attention to the source of an RNN, of Luong's RNN and of a
ConvS2S, and the self-attention and the cross-attention of a Transformer. All models of a home have as many parameters
as the one with the home's usual attention, or as near as one width allows. Every run is one of train.py on one thread,
with 10,000 captions and to the end of its schedule. The queue may be killed at any time: the same command resumes it,
and no finished run is repeated. rows.jsonl in the folder of the runs has a line for each finished run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import UserError, reports_user_errors, sentence_of
from seq2seq_attn.files import replacing
from seq2seq_attn.training.checks import check_positions

ROOT = Path(__file__).parents[2]
VOCABULARY = 4000
CAPTIONS = 10_000  # so few that the learning curves flatten within the schedule
EPOCHS = 18
COMMON = (
    "data=multi30k", f"tokenizer.vocab_size={VOCABULARY}", "batch_tokens=2048", f"trainer.max_epochs={EPOCHS}",
    "trainer.check_val_every_n_epoch=2", "val_sentences=256", "metric=[bleu,chrf]", "num_threads=1",
    "~callback.attention_map", "~callback.translation_table",
)  # fmt: skip
TWO_LAYERS = ("model.encoder.num_layers=2", "model.decoder.num_layers=2")
AUTOSAVES = ("last.ckpt", "previous.ckpt")
ROWS = "rows.jsonl"
LOG = "output.txt"
ATTEMPTS = "attempts.txt"
SEEDS = (1, 2, 3)
BEST = 5  # attentions of each home that are repeated with all seeds


class Home(NamedTuple):
    """A place of a model that takes an attention.

    Attributes:
        slot: the option that selects the attention.
        model: the overrides of all its runs.
        usual: the attention whose number of parameters the others get.
        first: the attentions that run first and with all seeds.
        own: the attentions whose paper has them here.
        width: the option that makes models equally large; it changes no width of the attention.
        only: the attentions that run here; empty: all.
    """

    title: str
    slot: str
    model: tuple[str, ...]
    usual: str
    first: tuple[str, ...]
    own: tuple[str, ...]
    width: str
    only: tuple[str, ...] = ()


LUONG = ("luong_dot", "luong_general", "luong_concat", "luong_location", "local_m", "local_p")
TRANSFORMER = ("model=transformer", *TWO_LAYERS)
OF_TRANSFORMERS = (
    "alternating", "bigbird", "block_summary", "cosformer", "cosine", "differential", "dilated", "fixed_patterns",
    "gated", "global_local", "grouped_query", "l2", "linear", "lsh", "multi_query", "performer", "relu", "sigmoid",
    "sink", "soft_cap", "softmax_free", "softmax_one", "sparse", "synthesizer_dense", "synthesizer_dense_vanilla",
    "synthesizer_factorized_dense", "synthesizer_factorized_random", "synthesizer_fixed_random", "synthesizer_random",
    "synthesizer_random_dense", "synthesizer_random_vanilla", "talking_heads", "top_blocks", "top_k",
)  # fmt: skip
HOMES = {
    "rnn": Home(
        title="Attention to the source in the RNN",
        slot="attention",
        model=("model=rnn",),
        usual="bahdanau",
        first=("none", "bahdanau", "multihead"),
        own=("bahdanau", "coverage", "location_sensitive", "monotonic", "hard", "sparsemax", "entmax15"),
        width="model.embedding_dim",
    ),
    "rnn_luong": Home(
        title="Attention to the source in Luong's RNN, after the recurrent step",
        slot="attention",
        model=("model=rnn", "decoder@model.decoder=rnn_luong"),
        usual="luong_general",
        first=("none", "luong_general", "multihead"),
        own=LUONG,
        width="model.embedding_dim",
        only=("none", "bahdanau", "multihead", "scaled_dot", *LUONG),
    ),
    "conv": Home(
        title="Attention to the source in ConvS2S",
        slot="attention",
        model=("model=conv", *TWO_LAYERS),
        usual="luong_dot",
        first=("none", "luong_dot", "multihead"),
        own=("luong_dot",),
        width="model.encoder.dim",
    ),
    "self": Home(
        title="Self-attention in the Transformer",
        slot="attention",
        model=(*TRANSFORMER, "feed_forward.ff_dim=768"),
        usual="multihead",
        first=("none", "multihead", "scaled_dot"),
        own=("multihead", *OF_TRANSFORMERS),
        width="feed_forward.ff_dim",
    ),
    "cross": Home(
        title="Cross-attention in the Transformer",
        slot="attention@cross_attention",
        model=(*TRANSFORMER, "attention=multihead", "feed_forward.ff_dim=768"),
        usual="multihead",
        first=("none", "multihead", "scaled_dot"),
        own=("multihead",),
        width="feed_forward.ff_dim",
    ),
}


class Job(NamedTuple):
    """A run of the queue; its folder is HOME/PRESET/SEED."""

    home: str
    preset: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.home / self.preset / str(self.seed)


class RefusedError(Exception):
    """An attention that a home does not take, with the sentence that says why."""


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="train what has not been trained")
    run.add_argument("--data", type=Path, required=True, help="folder with the folder multi30k")
    run.add_argument("--jobs", type=int, default=1, help="simultaneous runs, each on one thread")
    run.add_argument("--override", nargs="*", default=[], help="overrides of train.py for every run")
    run.set_defaults(act=run_queue)
    for command in commands.choices.values():
        command.add_argument("--runs", type=Path, required=True, help="folder of the runs")
        command.add_argument("--home", nargs="+", default=list(HOMES), choices=list(HOMES), metavar="HOME")
    return parser.parse_args(arguments)


def presets() -> list[str]:
    return sorted(path.stem for path in (ROOT / "conf/attention").glob("*.yaml"))


def run_queue(options: argparse.Namespace) -> None:
    """Run all jobs that have no row: one seed of everything, then the other seeds of those that get them."""
    if not (options.data / "multi30k").is_dir():
        raise UserError(f"--data {options.data} has no folder multi30k; give the folder that contains it")
    options.runs.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(options.runs / "queue.lock", timeout=0):
            cut_captions(options.data / "multi30k", options.runs / "captions")
            failed = run_jobs(first_jobs(options.home), options)
            failed = run_jobs(failed, options)
            later = later_jobs(options.home, read_rows(options.runs))
            failed += run_jobs(run_jobs(later, options), options)
    except Timeout as error:
        raise UserError(f"another queue runs in {options.runs}; end it, or give another folder of --runs") from error
    if failed:
        names = ", ".join(job.folder(Path()).as_posix() for job in failed)
        sys.exit(f"{len(failed)} runs failed: {names}; repeat the command to run them again")


def cut_captions(source: Path, target: Path) -> None:
    """Copy the captions, of the training set the first ones only."""
    target.mkdir(exist_ok=True)
    for file in source.glob("*.gz"):
        with gzip.open(file) as lines, replacing(target / file.name) as stream, gzip.open(stream, "wb") as cut:
            cut.writelines(islice(lines, CAPTIONS) if file.name.startswith("train.") else lines)


def first_jobs(homes: Sequence[str]) -> list[Job]:
    """Return every attention of every home with the first seed: the usual ones, those at home there, the others."""
    chosen = [HOMES[name] for name in homes]
    everything = [home.only or tuple(presets()) for home in chosen]
    rounds = [[home.first for home in chosen], [home.own for home in chosen], everything]
    order = [
        Job(name, preset, SEEDS[0])
        for of_round in rounds
        for row in zip_longest(*of_round)
        for name, preset in zip(homes, row, strict=True)
        if preset is not None
    ]
    return list(dict.fromkeys(order))


def later_jobs(homes: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[Job]:
    """Return the jobs of the other seeds: of the usual attentions, of those at home there, and of each home's best."""
    order = []
    for seed in SEEDS[1:]:
        for name in homes:
            scores = {
                row["preset"]: row["bleu"]
                for row in rows
                if row["home"] == name and row.get("seed") == SEEDS[0] and "bleu" in row
            }
            best = sorted(scores, key=lambda preset: -scores[preset])[:BEST]
            order += [Job(name, preset, seed) for preset in (*HOMES[name].first, *best, *HOMES[name].own)]
    return list(dict.fromkeys(order))


def run_jobs(jobs: Iterable[Job], options: argparse.Namespace) -> list[Job]:
    """Run those that have no row; return those that failed. Their output is in their folders."""
    done = {(row["home"], row["preset"], row["seed"]) for row in read_rows(options.runs)}
    left = [job for job in jobs if job not in done]
    failed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run_job, job, options): job for job in left}
        for number, future in enumerate(as_completed(running), 1):
            job, row = running[future], future.result()
            what = "failed" if row is None else row.get("refused") or f"BLEU {row['bleu']:.2f}"
            print(f"{number} of {len(left)}: {job.folder(Path()).as_posix()}: {what}", flush=True)
            if row is None:
                failed.append(job)
            else:
                write_rows(options.runs, [*read_rows(options.runs), row])
                for name in AUTOSAVES:
                    (job.folder(options.runs) / "checkpoints" / name).unlink(missing_ok=True)
    return failed


def run_job(job: Job, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a job; return its row, or None if it failed."""
    folder = job.folder(options.runs)
    try:
        overrides = command(job)
    except RefusedError as refusal:
        return {**job._asdict(), "refused": str(refusal)}
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "run.lock"):  # wait for a run that outlived its queue
        pass
    if not (folder / "results.json").is_file():
        here = [
            f"hydra.run.dir={folder.resolve()}",
            "resume=auto",
            f"data.path={(options.runs / 'captions').resolve()}",
        ]
        train([*overrides, *options.override, *here], folder)
    return row_of(job, folder) if (folder / "results.json").is_file() else None


def train(overrides: Sequence[str], folder: Path) -> None:
    """Run train.py; note that it started and, when it ends, its processor time."""
    with (folder / LOG).open("a", encoding="utf-8") as log, (folder / ATTEMPTS).open("a", encoding="utf-8") as attempts:
        print("started", file=attempts, flush=True)
        process = subprocess.Popen([sys.executable, "train.py", *overrides], cwd=ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        print(f"{usage.ru_utime + usage.ru_stime:.1f}", file=attempts)


def row_of(job: Job, folder: Path) -> dict[str, Any]:
    """Return the row of a finished run."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    config = OmegaConf.load(folder / "config.yaml")
    attempts = (folder / ATTEMPTS).read_text(encoding="utf-8").split()
    undisturbed = attempts.count("started") == 1
    return {
        **job._asdict(),
        "commit": provenance.get("commit"),
        "parameters": results["num_parameters"],
        "bleu": results["test/bleu"],
        "bleu_signature": results["test/bleu_signature"],
        "chrf": results["test/chrf"],
        "chrf_signature": results["test/chrf_signature"],
        "loss": results["test/loss"],
        "entropy": results["attention_entropy"],
        "epochs": config.trainer.max_epochs,
        "updates": results["steps"],
        "minutes": round(results["train_seconds"] / 60, 1) if undisturbed else None,
        "processor_minutes": round(float(attempts[1]) / 60, 1) if undisturbed and len(attempts) > 1 else None,
        "folder": job.folder(Path()).as_posix(),
    }


def read_rows(runs: Path) -> list[dict[str, Any]]:
    file = runs / ROWS
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def write_rows(runs: Path, rows: Iterable[dict[str, Any]]) -> None:
    with replacing(runs / ROWS) as stream:
        stream.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())


def command(job: Job) -> list[str]:
    """Return the overrides of train.py for a run, without those that depend on the machine.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    home = HOMES[job.home]
    width = f"{home.width}={equal_width(job.home, job.preset)}"
    return [*COMMON, *home.model, f"{home.slot}={job.preset}", width, f"seed={job.seed}"]


@cache
def equal_width(name: str, preset: str) -> int:
    """Return the width with which the model of an attention is nearest in size to that of the home's usual one.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    home = HOMES[name]
    width: int = OmegaConf.select(composed(name, home.usual), home.width)
    target = num_parameters(name, home.usual, width)
    sizes = {width: num_parameters(name, preset, width)}
    while True:
        ordered = sorted(sizes, key=lambda known: abs(sizes[known] - target))
        best = ordered[0]
        beside = best + (1 if sizes[best] < target else -1)
        if sizes[best] == target or beside in sizes:
            return best
        if len(sizes) > 1:  # along the line through two points
            slope = (sizes[best] - sizes[ordered[1]]) / (best - ordered[1])
            along = best + round((target - sizes[best]) / slope)
            beside = beside if along in sizes else along
        if beside < 1:
            raise RefusedError(f"{preset} has more parameters than a whole model with {home.usual}")
        sizes[beside] = num_parameters(name, preset, beside)


def num_parameters(name: str, preset: str, width: int) -> int:
    """Return the number of parameters of a model.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    config = composed(name, preset).copy()
    OmegaConf.update(config, HOMES[name].width, width)
    try:
        model = instantiate(OmegaConf.to_container(config.model, resolve=True), _convert_="all")
        check_positions(model)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        raise RefusedError(sentence) from error
    return sum(weight.numel() for weight in model.parameters())


@cache
def composed(name: str, preset: str) -> DictConfig:
    home = HOMES[name]
    sizes = [f"model.{side}_vocab_size={VOCABULARY}" for side in ("source", "target")]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", [*COMMON, *home.model, f"{home.slot}={preset}", *sizes])


if __name__ == "__main__":
    main()
