"""BLEU by minutes of training, ours and JoeyNMT's: `python -m scripts.benchmarks.minutes --minutes 30`.

Both train a recurrent model with the attention of Bahdanau et al. 2015 on Tatoeba, of the same size, with the same
vocabulary and the same sentences for validation and test. Minutes count from the start of the command, validations
included. The programs run one after the other, on equally many threads. The translations of both are scored by our
BLEU against all references.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from scripts.benchmarks.draw_minutes import draw
from scripts.benchmarks.peer_data import write_data
from scripts.benchmarks.peer_environment import made_environment
from scripts.benchmarks.processor import processor
from scripts.benchmarks.training import CACHE, COMMON, ROOT
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.paths import conf_directory, quoted

EXPERIMENT = "experiment=tatoeba_best"
DIM = 256
BEAM = "beam"  # search of the tests; validations are greedy
Validations = dict[int, float | None]  # BLEU by update; None: not known yet


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = measured(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {draw(options.output)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="fra.txt; default: download")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--override", nargs="*", default=[], help="overrides of our train.py")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of JoeyNMT")
    parser.add_argument("--validation-updates", type=int, default=100, help="updates between validations of JoeyNMT")
    parser.add_argument("--environments", type=Path, default=CACHE / "peers", help="folder of JoeyNMT's environment")
    parser.add_argument("--runs", type=Path, default=Path("runs/tatoeba_minutes"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks/tatoeba_minutes.json")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Train both; return their curves and test results as plain data."""
    config = composed(overrides(options))
    runs = options.runs.resolve()
    shared, splits = write_data(config, runs / "data")
    python = made_environment("joeynmt", options.environments.expanduser())
    ours = [*overrides(options), f"{options.minutes:g} minutes"]
    theirs = [*ours, f"lr {options.lr:g}", f"validation_updates {options.validation_updates}"]

    def learn(folder: Path) -> dict[str, Any]:
        shutil.copytree(runs / "data", folder)
        return train_joeynmt(options, python, folder, shared, config, splits)

    results = {
        "ours": cached(runs / "ours", ours, lambda folder: train_ours(options, folder)),
        "joeynmt": cached(runs / "joeynmt", theirs, learn),
    }
    return {
        "programs": results,
        "minutes": options.minutes,
        "threads": options.threads,
        "tokens": shared["tokens"],
        "sentences": {name: len(split) for name, split in splits.items()},
        "dim": DIM,
        "command": command_of(options),
        "machine": {"processor": processor(), "torch": torch.__version__},
    }


def cached(folder: Path, settings: list[str], train: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Return the results of a program, from an earlier run with the same settings or a new one."""
    file = folder.with_suffix(".json")
    if file.is_file() and (record := json.loads(file.read_text(encoding="utf-8")))["settings"] == settings:
        print(f"{folder.name} has already run: {file}")
        return record["results"]
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
    results = train(folder)
    file.write_text(json.dumps({"settings": settings, "results": results}, indent=1) + "\n", encoding="utf-8")
    return results


def command_of(options: argparse.Namespace) -> str:
    """Return the command for the page, without local paths."""
    return " ".join(
        [
            "python -m scripts.benchmarks.minutes",
            f"--minutes {options.minutes:g}",
            f"--threads {options.threads}",
            f"--lr {options.lr:g}",
            f"--validation-updates {options.validation_updates}",
            *(["--override", *options.override] if options.override else []),
        ]
    )


def overrides(options: argparse.Namespace) -> list[str]:
    given = [f"data.path={quoted(options.data.resolve())}"] if options.data else []
    sizes = [f"model.{part}={DIM}" for part in ("embedding_dim", "encoder.dim", "decoder.dim")]
    return [
        EXPERIMENT,
        *given,
        *sizes,
        "search=greedy",
        "model.tie_embeddings=all",
        f"num_threads={options.threads}",
        *options.override,
    ]


def composed(given: Sequence[str]) -> Any:
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        return compose("train", overrides=list(given))


def train_ours(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        *overrides(options),
        f"hydra.run.dir={quoted(folder)}",
        f"trainer.max_time={{minutes:{options.minutes}}}",
    ]

    def validations() -> Validations:
        file = folder / "metrics.csv"
        if not file.is_file():
            return {}
        with file.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        return {int(row["step"]) + 1: float(row["val/bleu"]) for row in rows if row.get("val/bleu")}

    curve = watched(command, folder.with_suffix(".log"), options, validations)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    test = [
        sys.executable,
        str(ROOT / "evaluate.py"),
        f"ckpt_path={quoted(folder)}",
        f"search={BEAM}",
        "splits=[test]",
        "bootstrap=0",
        f"hydra.run.dir={quoted(folder / 'beam')}",
    ]
    subprocess.run(test, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    evaluation = json.loads((folder / "beam" / "evaluation.json").read_text(encoding="utf-8"))
    return {
        "curve": curve,
        "test_bleu": evaluation["splits"]["test"]["bleu"],
        "parameters": results["num_parameters"],
        "updates": results["steps"],
    }


def train_joeynmt(
    options: argparse.Namespace, python: Path, folder: Path, shared: dict[str, Any], config: Any, splits: Any
) -> dict[str, Any]:
    settings = (
        COMMON
        | shared
        | {
            "model": "rnn",
            "dim": DIM,
            "dropout": 0.2,
            "lr": options.lr,
            "batch_tokens": config.batch_tokens,
            "beam_size": composed([f"search={BEAM}"]).search.beam_size,
            "validation_updates": options.validation_updates,
        }
    )
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [str(python), str(ROOT / "scripts/benchmarks/learn_with_joeynmt.py"), str(folder), str(options.minutes)]
    output = folder / "model"

    def validations() -> Validations:
        complete = (file for file in output.glob("*.hyps") if file.stem.isdecimal())
        sizes = {int(file.stem): len(lines_of(file)) for file in complete}
        return {step: None for step, size in sorted(sizes.items()) if size == len(splits["val"])}

    curve = watched(command, folder.with_suffix(".log"), options, validations)
    for point in curve:
        point["bleu"] = bleu(lines_of(output / f"{point['updates']}.hyps"), splits["val"].references)
    test = bleu(lines_of(output / "best.hyps.test"), splits["test"].references)
    return {
        "curve": curve,
        "test_bleu": test,
        "parameters": parameters_of(folder / "model"),
        "updates": curve[-1]["updates"],
        "lr": options.lr,
    }


def watched(
    command: Sequence[str], log: Path, options: argparse.Namespace, validations: Callable[[], Validations]
) -> list[dict[str, Any]]:
    """Run a program; return its validations with the minutes since its start, to a second.

    Raises:
        UserError: if the program fails.
    """
    environment = os.environ | {
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    curve: dict[int, dict[str, Any]] = {}
    with log.open("w", encoding="utf-8") as out:
        started = time.monotonic()
        program = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        try:
            ended = False
            while not ended:
                time.sleep(1)
                ended = program.poll() is not None
                minutes = (time.monotonic() - started) / 60
                for updates, score in validations().items():
                    if updates not in curve:
                        curve[updates] = {"minutes": minutes, "updates": updates, "bleu": score}
                        bleu_text = "" if score is None else f", BLEU {score:.1f}"
                        print(f"{log.stem}: {minutes:.1f} min, {updates} updates{bleu_text}", flush=True)
        finally:
            program.kill()
    if program.returncode or not curve:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
        raise UserError(f"{' '.join(command)} failed: {' / '.join(last)}")
    return list(curve.values())


def lines_of(file: Path) -> list[str]:
    return file.read_bytes().decode().removesuffix("\n").split("\n")


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    metric = BLEU(lowercase=False, tokenize="13a")
    metric.update(hypotheses, references)
    return metric.compute().item()


def parameters_of(folder: Path) -> int:
    """Return the number of parameters of JoeyNMT's model, with tied weights counted once."""
    state = torch.load(folder / "best.ckpt", map_location="cpu", weights_only=False)["model_state"]
    return sum({weight.data_ptr(): weight.numel() for weight in state.values()}.values())


if __name__ == "__main__":
    main()
