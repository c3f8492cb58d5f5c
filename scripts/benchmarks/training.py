"""Benchmark of training, in tokens per second: `python -m scripts.benchmarks.training --peers joeynmt hf`.

All programs train a model of the same size on the captions of Multi30k, with the same vocabulary and equally large
batches: our `train.py`, a plain PyTorch loop (`train_plainly.py`) with our loss and with PyTorch's, and the named
peers, each in a separate environment. The programs are processes that take turns of a few updates, so that other load
on the machine affects all of them: with one thread processor time is measured, with more wall-clock time.
For a quick run: `--sizes A --threads 1 --turns 2 --updates 3 --warm-up 2 --output /tmp/figures`.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from scripts.benchmarks.draw_training import NAMES, draw
from scripts.benchmarks.pace_training import Program
from scripts.benchmarks.peer_data import write_data
from scripts.benchmarks.peer_environment import REQUIREMENTS, made_environment
from scripts.benchmarks.processor import processor
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.paths import conf_directory, quoted
from seq2seq_attn.training.provenance import commit

ROOT = Path(__file__).parents[2]
CACHE = Path("~/.cache/seq2seq_attn")
SIZES: dict[str, dict[str, Any]] = {
    "A": {"model": "transformer", "layers": 4, "dim": 128, "ff_dim": 256, "heads": 4},
    "B": {"model": "rnn", "dim": 256},
}
COMMON = {"dropout": 0.1, "smoothing": 0.1, "lr": 0.001, "clip": 1.0, "seed": 1}
ONLY_TRANSFORMER = ("hf",)  # peers without a recurrent model
REST = 0.5  # seconds between turns, for the threads of the last one to become idle


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    file = options.output / f"{options.name}.json"
    if options.keep and file.exists():
        check_kept(json.loads(file.read_text(encoding="utf-8")), file, options)
    results = measured(options)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.keep and file.exists():
        results = merge(json.loads(file.read_text(encoding="utf-8")), results)
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {draw(file)}")


def check_kept(old: dict[str, Any], file: Path, options: argparse.Namespace) -> None:
    """Check that figures which are kept are of this machine and of equal batches and vocabularies: a page names one.

    Raises:
        UserError: if they are not.
    """
    if old["machine"] != machine():
        was = ", ".join(f"{name} {value}" for name, value in old["machine"].items())
        raise UserError(f"{file} has figures of {was}; give another --name, or leave out --keep")
    for name, option in (("batch_tokens", "--batch-tokens"), ("tokens", "--tokens")):
        if old["options"][name] != getattr(options, name):
            raise UserError(
                f"{file} has figures of {option} {old['options'][name]}, not {getattr(options, name)}; give another "
                "--name, or leave out --keep"
            )


def machine() -> dict[str, str]:
    return {"processor": processor(), "python": platform.python_version(), "torch": torch.__version__}


def merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of both; for the same size and number of threads, the new ones."""
    names = sorted(old["sizes"].keys() | new["sizes"].keys())
    sizes = {name: old["sizes"].get(name, {}) | new["sizes"].get(name, {}) for name in names}
    commands = old["commands"] + new["commands"]
    is_kept = any(of.keys() - new["sizes"].get(name, {}).keys() for name, of in old["sizes"].items())
    kept_commits = [*old.get("kept_commits", []), old.get("commit")] if is_kept else []
    settings = old["settings"] | new["settings"]
    return new | {"sizes": sizes, "settings": settings, "commands": commands, "kept_commits": kept_commits}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="*", default=[], choices=list(REQUIREMENTS))
    parser.add_argument("--data", type=Path, help="folder of train.en.gz and the other files; default: download")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--batch-tokens", type=int, default=4096, help="padded source and target tokens per batch")
    parser.add_argument("--tokens", type=int, default=8000, help="size of the joint vocabulary")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--updates", type=int, default=20, help="updates per turn")
    parser.add_argument("--warm-up", type=int, default=20, help="updates before the first turn")
    parser.add_argument("--override", nargs="*", default=[], help="further overrides of train.py")
    parser.add_argument("--environments", type=Path, default=CACHE / "peers", help="folder of the peers' environments")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--name", default="training_cpu", help="file name of the page, its plot and its figures")
    parser.add_argument("--keep", action="store_true", help="keep the page's figures of other sizes and threads")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return everything that the page reports, as plain data."""
    options.environments = options.environments.expanduser()
    pythons = {name: made_environment(name, options.environments) for name in options.peers}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        known, _ = write_data(composed(options), data)
        shared = known | {"batch_tokens": options.batch_tokens}
        for size in options.sizes:
            settings = SIZES[size] | COMMON | shared
            commands = all_commands(settings, options, pythons, Path(folder) / size, data)
            results[size] = {
                str(threads): in_turns(commands, size, threads, options, Path(folder)) for threads in options.threads
            }
    return {
        "commands": [f"python -m scripts.benchmarks.training {typed(options)}"],
        "commit": commit(),
        "sizes": results,
        "settings": {size: SIZES[size] | COMMON for size in options.sizes},
        "options": {name: getattr(options, name) for name in ("batch_tokens", "tokens", "turns", "updates", "warm_up")},
        "machine": machine(),
    }


def typed(options: argparse.Namespace) -> str:
    """Return the arguments of the command, without the folder of this machine."""
    return " ".join("FOLDER" if word == str(options.data) else word for word in sys.argv[1:])


def overrides(size: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Return the overrides with which `train.py` trains a size, without end and without validation."""
    dim, dropout = size["dim"], size["dropout"]
    model_options = {
        "transformer": [
            "model=transformer",
            f"attention.num_heads={size.get('heads')}",
            f"cross_attention.num_heads={size.get('heads')}",
            f"feed_forward.ff_dim={size.get('ff_dim')}",
            "model.dropout=0.0",
            f"model.encoder.num_layers={size.get('layers')}",
            f"model.decoder.num_layers={size.get('layers')}",
        ],
        "rnn": ["model=rnn", "decoder@model.decoder=rnn_luong", "attention=bahdanau", f"model.dropout={dropout}"],
    }[size["model"]]
    return [
        "data=multi30k",
        *([f"data.path={quoted(options.data.resolve())}"] if options.data else []),
        f"tokenizer.vocab_size={options.tokens}",
        *model_options,
        "model.tie_embeddings=all",
        f"model.embedding_dim={dim}",
        f"model.encoder.dim={dim}",
        f"model.decoder.dim={dim}",
        f"model.encoder.dropout={dropout}",
        f"model.decoder.dropout={dropout}",
        f"label_smoothing={size['smoothing']}",
        f"optimizer.lr={size['lr']}",
        f"seed={size['seed']}",
        f"trainer.gradient_clip_val={size['clip']}",
        f"batch_tokens={options.batch_tokens}",
        "trainer.max_epochs=1000",
        "trainer.limit_val_batches=0",
        *options.override,
    ]


def composed(options: argparse.Namespace) -> Any:
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        return compose("train", overrides=overrides(SIZES["A"] | COMMON, options))


def all_commands(
    settings: dict[str, Any], options: argparse.Namespace, pythons: dict[str, Path], folder: Path, data: Path
) -> dict[str, list[str]]:
    """Return the command of each program, which has its own folder with the settings and links to the data."""

    def program_folder(name: str) -> str:
        path = folder / name
        path.mkdir(parents=True)
        for file in data.iterdir():
            (path / file.name).symlink_to(file)
        (path / "settings.json").write_text(json.dumps(settings))
        return str(path)

    script: Callable[[str], str] = lambda name: str(ROOT / "scripts" / "benchmarks" / f"{name}.py")  # noqa: E731
    ours = [
        sys.executable,
        str(ROOT / "train.py"),
        *overrides(settings, options),
        "+callback.pace._target_=scripts.benchmarks.pace_lightning.Paced",
        f"hydra.run.dir={quoted(Path(program_folder('ours')))}",
    ]
    commands = {"ours": ours}
    for loss in ("chunked", "cross_entropy"):
        commands[f"plain_{loss}"] = [sys.executable, script("train_plainly"), program_folder(f"plain_{loss}"), loss]
    for name, python in pythons.items():
        if settings["model"] == "transformer" or name not in ONLY_TRANSFORMER:
            commands[name] = [str(python), script(f"train_with_{name}"), program_folder(name)]
    return commands


def in_turns(
    commands: dict[str, list[str]], size: str, threads: int, options: argparse.Namespace, folder: Path
) -> dict[str, dict[str, Any]]:
    """Return the seconds until the first update, every turn and the peak memory, by program."""
    environment = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    programs: dict[str, Program] = {}
    try:
        for name, command in commands.items():
            time.sleep(REST)
            programs[name] = Program(command, folder / f"{size}_{threads}_{name}.log", environment)
            started = programs[name].start_seconds
            print(f"{size}, {threads} threads, {NAMES[name]}: first update after {started:.1f} s", flush=True)
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
        for turn in range(options.turns + 1):
            for name, program in programs.items():
                time.sleep(REST)
                measurement = program.turn(options.updates if turn else options.warm_up)
                if turn:
                    turns[name].append(measurement)
                    speed = measurement["tokens"] / measurement["cpu_seconds" if threads == 1 else "seconds"]
                    print(f"{size}, {threads} threads, turn {turn}, {NAMES[name]}: {speed:,.0f} tokens/s", flush=True)
    finally:
        for program in programs.values():
            program.end()
    check_same_batches(turns)
    return {
        name: {
            "start_seconds": program.start_seconds,
            "turns": turns[name],
            "peak_memory_bytes": max(turn["peak_memory_bytes"] for turn in turns[name]),
        }
        for name, program in programs.items()
    }


def check_same_batches(turns: dict[str, list[dict[str, Any]]]) -> None:
    """Check that ours and the plain loops read the same batches, since they are compared turn by turn."""
    read = {
        name: [(turn["tokens"], turn["padded_tokens"]) for turn in program_turns]
        for name, program_turns in turns.items()
        if name == "ours" or name.startswith("plain_")
    }
    if len({tuple(batches) for batches in read.values()}) > 1:
        raise RuntimeError(f"ours and the plain loops did not read the same batches: {read}")


if __name__ == "__main__":
    main()
