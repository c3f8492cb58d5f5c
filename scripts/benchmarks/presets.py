"""Every attention on the captions of Multi30k, with equal weights and updates: `python -m scripts.benchmarks.presets`.

Each is the self-attention of the Transformer of experiment=preset_table; the width of the feed-forward layers is chosen
so that all models have as many weights as the one with multihead attention. Every row is a run of train.py, whose
command is on the page; complete runs are not repeated. --jobs is the number of simultaneous runs, each on one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from scripts import conf_files
from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.comparison.runs import compare, write
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import code
from seq2seq_attn.paths import quoted

ROOT = Path(__file__).parents[2]
EXPERIMENT = "experiment=preset_table"
STANDARD = "multihead"
VOCABULARY = 8000  # tokens of both vocabularies, when the width is chosen
LOG = "output.txt"
MACHINE = ("hydra.run.dir=", "resume=", "data.path=")  # overrides that depend on the machine
OPTIONS = {"hard": ["attention.normalizer.soft_probability=0.5"]}  # with which some presets run
COMMANDS = """
## The command of each row

Run them in the root of the repository. `data.path=FOLDER` is the folder of the captions, if they are not to be
downloaded, and `hydra.run.dir=` that of the run. For these {rows} rows, {jobs} at a time, and this page:

```
{whole}
```

Half of the rows of weights of `hard` are soft in training, as in its paper; by default no row is.

{table}
"""


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.data and not options.data.is_dir():
        raise UserError(f"--data {options.data} is not a folder; give the folder of Multi30k's captions")
    jobs = {
        options.runs / preset / str(seed): command(preset, seed) for preset in options.presets for seed in options.seeds
    }
    for folder, job in jobs.items():
        if done(folder):
            check_command(folder, [*job, *options.override])
    failed = run_all({folder: job for folder, job in jobs.items() if not done(folder)}, options)
    groups, left_out = compare([options.runs], STANDARD if STANDARD in options.presets else None, 1000)
    write(groups, left_out, options.output, 0)
    page = options.output.with_suffix(".md")
    page.write_text(page.read_text(encoding="utf-8") + commands(options), encoding="utf-8")
    if failed:
        sys.exit(f"{len(failed)} of {len(jobs)} runs failed: {', '.join(failed)}; repeat the command to run them again")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the captions; default: download")
    parser.add_argument("--presets", nargs="+", default=presets(), choices=presets(), metavar="PRESET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--jobs", type=int, default=2, help="simultaneous runs, each on one thread")
    parser.add_argument("--override", nargs="*", default=[], help="overrides of train.py for every row")
    parser.add_argument("--runs", type=Path, default=Path("runs/preset_table"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks/presets.html")
    return parser.parse_args(arguments)


@cache
def presets() -> list[str]:
    """Return the presets that serve self-attention."""
    return [name for name in conf_files.presets() if not option_reads_history(name)]


def command(preset: str, seed: int) -> list[str]:
    """Return the overrides of train.py for a row, without those that depend on the machine."""
    return [
        EXPERIMENT,
        f"attention={preset}",
        *OPTIONS.get(preset, []),
        f"feed_forward.ff_dim={equal_width(preset)}",
        f"seed={seed}",
        "num_threads=1",
    ]


def equal_width(preset: str) -> int:
    """Return the width of the feed-forward layers that makes the number of weights nearest to the standard model's.

    Raises:
        ValueError: if the attention alone has too many weights.
    """
    width = composed(STANDARD).feed_forward.ff_dim
    per_unit = num_parameters(STANDARD, width + 1) - num_parameters(STANDARD, width)
    equal = width + round((num_parameters(STANDARD, width) - num_parameters(preset, width)) / per_unit)
    if equal < 1:
        raise ValueError(f"{preset} has more weights than a model of {STANDARD}; give {EXPERIMENT} wider layers")
    return equal


@cache
def num_parameters(preset: str, width: int) -> int:
    config = composed(preset).copy()
    config.feed_forward.ff_dim = width
    model = instantiate(OmegaConf.to_container(config.model, resolve=True), _convert_="all")
    return sum(weight.numel() for weight in model.parameters())


@cache
def composed(preset: str) -> DictConfig:
    sizes = [f"model.{side}_vocab_size={VOCABULARY}" for side in ("source", "target")]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", [EXPERIMENT, f"attention={preset}", *sizes])


def done(folder: Path) -> bool:
    return (folder / "results.json").is_file()


def check_command(folder: Path, job: Sequence[str]) -> None:
    """Check that a complete run had the overrides of its row.

    Raises:
        UserError: if it had others.
    """
    words = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["command"][1:]
    had = {word for word in words if not word.startswith(MACHINE)}
    if had != set(job):
        others = " ".join(sorted(had ^ set(job)))
        raise UserError(
            f"{folder} is a complete run whose overrides differ from this command's in {others}; give another --runs"
        )


def run_all(jobs: dict[Path, list[str]], options: argparse.Namespace) -> list[str]:
    """Run all jobs; return the names of those that failed. Their output is in their folders."""
    failed = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn()) as progress, ThreadPoolExecutor(options.jobs) as pool:
        bar = progress.add_task("rows", total=len(jobs))
        running = {pool.submit(run, folder, job, options): folder for folder, job in jobs.items()}
        for future in as_completed(running):
            folder = running[future]
            progress.update(bar, advance=1)
            if future.result() or not done(folder):
                failed.append(folder.relative_to(options.runs).as_posix())
                progress.console.print(f"{failed[-1]} failed; see {folder / LOG}", markup=False)
    return failed


def run(folder: Path, job: Sequence[str], options: argparse.Namespace) -> int:
    """Run or resume one run; return its exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    here = [f"hydra.run.dir={quoted(folder.resolve())}", "resume=auto", *options.override]
    if options.data:
        here.append(f"data.path={quoted(options.data.resolve())}")
    with (folder / LOG).open("a", encoding="utf-8") as log:
        return subprocess.run([sys.executable, "train.py", *job, *here], cwd=ROOT, stdout=log, stderr=log).returncode


def commands(options: argparse.Namespace) -> str:
    """Return a section for the page with the command of each row."""
    rows = [
        f"| {preset} | {in_cell(['python train.py', *command(preset, seed), *options.override])} |"
        for preset in options.presets
        for seed in options.seeds
    ]
    table = "\n".join(["| attention | command |", "|:--|:--|", *rows])
    given = {"--presets": options.presets, "--seeds": options.seeds, "--override": options.override}
    usual = {"--presets": presets(), "--seeds": [1], "--override": []}
    changed = [" ".join([name, *map(str, words)]) for name, words in given.items() if words != usual[name]]
    whole = " ".join(["python -m scripts.benchmarks.presets", f"--jobs {options.jobs}", *changed])
    return COMMANDS.format(rows=len(rows), jobs=options.jobs, whole=whole, table=table)


def in_cell(words: Sequence[str]) -> str:
    return code(" ".join(words)).replace("|", "\\|")


if __name__ == "__main__":
    main()
