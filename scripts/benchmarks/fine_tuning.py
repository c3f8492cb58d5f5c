"""What fine-tuning gains: `python -m scripts.benchmarks.fine_tuning --parents RUN RUN RUN --data FOLDER`.

Each parent, a recurrent model of Tatoeba, is fine-tuned on the first captions of Multi30k with init_from.run. It is
compared with the parent itself, which is only evaluated, and with a model of the same architecture that is trained on
these captions alone. All are scored on test_2016_flickr. Every row is a run of train.py or evaluate.py; complete runs
are not repeated, and interrupted ones resume.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from scripts.benchmarks.processor import processor
from scripts.benchmarks.training import ROOT
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.paths import quoted
from seq2seq_attn.training.provenance import commit

MADE = "made.json"  # in the folder of a run: the commit, torch and processor that made it
TEST = "test_2016_flickr"
LANGUAGES = ("en", "fr")
# Chosen by validation BLEU with seed 1; the page says among what.
TUNED = ["optimizer.lr=0.002"]
SCRATCH = [
    "recipe=none", "batch_tokens=2048", "tokenizer.vocab_size=2000", "optimizer.lr=0.003", "trainer.max_epochs=60",
]  # fmt: skip
ROWS = {
    "parent": "the parent, evaluated only",
    "scratch": "trained on the captions alone",
    "tuned": "the parent, fine-tuned on the captions",
}
TEXT = """\
# What fine-tuning gains

Recurrent models of Tatoeba (`python train.py data=tatoeba {parent} seed=SEED`) are fine-tuned on the first
{pairs:,} captions of Multi30k, English to French ([fine_tuning.md](../fine_tuning.md)). The same architecture is also
trained on these captions alone. The table gives sacreBLEU on {test}, with greedy search and the weights that
were best in validation.

{table}

Compared seed by seed, fine-tuning gains {over_parent} BLEU over the parent and {over_scratch} over training on
the captions alone (mean ± standard deviation, of scores before rounding).

Learning rates were chosen by the best validation BLEU with seed 1 and 1,000 captions:
{chosen} The test set was not read for it. The model without a parent has a vocabulary of its own, of 2,000
tokens, since so few captions do not support 5,000.

## Commands

`FOLDER` has the files of Multi30k, `train` cut to its first {pairs:,} lines, and `PARENT` is the run of the same seed.

```
{commands}
```

For all rows and this page:

```
{whole}
```

Commit {commit}, torch {torch}, {processor}, {threads} thread{plural} for each run.
"""
CHOSEN = """\
fine-tuning reached 18.9 with `optimizer.lr=0.001`, 20.1 with 0.002 and 20.1 with 0.004, and 16.6 with 0.0005 in
15 of the 20 epochs. Training without the parent reached 14.1 with 0.002, and 14.6 with 0.003 in 41 of the 60 epochs,
when it no longer rose."""


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    check_same(options)
    write_captions(options.data, options.runs / "data", options.pairs)
    scores: dict[str, list[float]] = {name: [] for name in ROWS}
    for seed, parent in zip(options.seeds, options.parents, strict=True):
        for name in ROWS:
            scores[name].append(score(name, seed, parent.resolve(), options))
            print(f"{ROWS[name]}, seed {seed}: BLEU {scores[name][-1]:.1f}", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(scores, options), encoding="utf-8")
    print(f"wrote {options.output}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parents", nargs="+", type=Path, required=True, help="runs on Tatoeba, one for each seed")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 1, 2, ...")
    parser.add_argument("--data", type=Path, required=True, help="folder of the captions")
    parser.add_argument("--pairs", type=int, default=1000, help="captions to train on")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each run")
    parser.add_argument("--override", nargs="*", default=[], help="overrides of train.py for every row")
    parser.add_argument("--runs", type=Path, default=Path("runs/fine_tuning"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks/fine_tuning.md")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or list(range(1, len(options.parents) + 1))
    if len(options.seeds) != len(options.parents):
        raise UserError(f"--seeds names {len(options.seeds)} and --parents {len(options.parents)}; give one for each")
    options.epochs = epochs_of(options.parents)
    return options


def check_same(options: argparse.Namespace) -> None:
    """Refuse to reuse runs of other settings; asked.json in the folder of the runs has those of earlier calls.

    Raises:
        UserError: if a setting differs.
    """
    asked = {
        "--data": str(options.data.resolve()),
        "--pairs": options.pairs,
        "--override": options.override,
        "--threads": options.threads,
    }
    for seed, parent in zip(options.seeds, options.parents, strict=True):
        asked[f"the parent of seed {seed}"] = str(parent.resolve())
    file = options.runs / "asked.json"
    before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for name, value in asked.items():
        if before.get(name, value) != value:
            raise UserError(
                f"{options.runs} has runs with {name} {before[name]}, not {value}; give another folder of --runs"
            )
    options.runs.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(before | asked, indent=2) + "\n", encoding="utf-8")


def write_captions(data: Path, folder: Path, pairs: int) -> None:
    """Write the files that data=multi30k reads, with the first pairs of the training split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val", TEST):
        for language in LANGUAGES:
            name = f"{split}.{language}"
            file = next((file for file in (data / name, data / f"{name}.gz") if file.is_file()), None)
            if file is None:
                raise UserError(f"{data} has no {name} or {name}.gz; give the folder of Multi30k's captions as --data")
            lines = read_lines(file)[: pairs if split == "train" else None]
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def overrides(name: str, seed: int, parent: str, data: str) -> list[str]:
    """Return the overrides of the command of a row, of evaluate.py for the parent and else of train.py."""
    corpus = ["data=multi30k", f"data.path={data}"]
    if name == "parent":
        return [f"ckpt_path={parent}", *corpus, "bootstrap=0"]
    return [*corpus, *([f"init_from.run={parent}", *TUNED] if name == "tuned" else SCRATCH), f"seed={seed}"]


def score(name: str, seed: int, parent: Path, options: argparse.Namespace) -> float:
    """Run the command of a row unless it is complete, and return its BLEU on the test set.

    Raises:
        UserError: if it fails.
    """
    folder = options.runs.resolve() / f"{name}_{seed}"
    report = folder / ("evaluation.json" if name == "parent" else "results.json")
    if not report.is_file():
        given = overrides(name, seed, quoted(parent), quoted((options.runs / "data").resolve()))
        given += [f"num_threads={options.threads}", f"hydra.run.dir={quoted(folder)}"]
        if name != "parent":
            given += ["resume=auto", "trainer.enable_progress_bar=false", *options.override]
        program = ROOT / ("evaluate.py" if name == "parent" else "train.py")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(options.threads)}
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "output.txt").open("a", encoding="utf-8") as log:
            done = subprocess.run([sys.executable, str(program), *given], stdout=log, stderr=log, env=environment)
        if done.returncode:
            last = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise UserError(f"{program.name} {' '.join(given)} failed: {' '.join(last)}")
        made = {"commit": (commit() or "unknown")[:7], "torch": torch.__version__, "processor": processor()}
        (folder / MADE).write_text(json.dumps(made) + "\n", encoding="utf-8")
    metrics: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return float(metrics["splits"]["test"]["bleu"] if name == "parent" else metrics["test/bleu"])


def page(scores: dict[str, list[float]], options: argparse.Namespace) -> str:
    """Return the text of the page."""
    titles = ["row", *(f"seed {seed}" for seed in options.seeds), "mean ± standard deviation"]
    rows = [[ROWS[name], *(f"{bleu:.1f}" for bleu in bleus), spread(bleus)] for name, bleus in scores.items()]
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)], *rows]
    commands = [
        f"python {'evaluate' if name == 'parent' else 'train'}.py {' '.join(overrides(name, 1, 'PARENT', 'FOLDER'))}"
        for name in ROWS
    ]
    whole = [f"--parents {' '.join(['PARENT'] * len(options.parents))}", "--data FOLDER", f"--pairs {options.pairs}"]
    whole += [f"--override {' '.join(options.override)}"] * bool(options.override)
    return TEXT.format(
        pairs=options.pairs,
        parent=f"trainer.max_epochs={options.epochs}",
        test=TEST,
        table="\n".join("| " + " | ".join(line) + " |" for line in lines),
        over_parent=gain(scores, "parent"),
        over_scratch=gain(scores, "scratch"),
        chosen=CHOSEN,
        commands="\n".join(commands),
        whole=" ".join(["python -m scripts.benchmarks.fine_tuning", *whole]),
        **made_by([options.runs / f"{name}_{seed}" for name in ROWS for seed in options.seeds]),
        threads=options.threads,
        plural="s" * (options.threads > 1),
    )


def made_by(folders: Sequence[Path]) -> dict[str, str]:
    """Return what made the runs in some folders, which may be several commits, or unknown."""
    files = [folder / MADE for folder in folders]
    made = [json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {} for file in files]
    names = {"commit": "unknown", "torch": "unknown", "processor": "unknown processor"}
    return {name: " and ".join(sorted({run.get(name, unknown) for run in made})) for name, unknown in names.items()}


def epochs_of(parents: Sequence[Path]) -> int:
    """Return the number of epochs that the parents were trained for.

    Raises:
        UserError: if they differ.
    """
    epochs = {OmegaConf.load(parent / "config.yaml").trainer.max_epochs for parent in parents}
    if len(epochs) > 1:
        raise UserError(f"the parents were trained for {sorted(epochs)} epochs; give runs of equal length")
    return int(epochs.pop())


def gain(scores: dict[str, list[float]], over: str) -> str:
    return spread([ours - theirs for ours, theirs in zip(scores["tuned"], scores[over], strict=True)])


def spread(values: list[float]) -> str:
    """Return the mean of the seeds, with the standard deviation if there are several."""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean}, one seed"


if __name__ == "__main__":
    main()
