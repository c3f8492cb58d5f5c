"""BLEU by minutes of training, ours and that of others: `python -m scripts.benchmarks.minutes --data fra.txt`.

All train on Tatoeba with one joint vocabulary, and with the same sentences for validation and test: our recurrent model
with the attention of Bahdanau et al. 2015, and the models of JoeyNMT and OpenNMT-py, recurrent ones of that size and
Transformers. Minutes count from the start of the command. The programs run one after the other, on equally many
threads. The translations of all are scored by our BLEU against all references. The figures are written after each run,
and no run that is among them is repeated: the same command goes on after an interruption.
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
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

from scripts.benchmarks.draw_minutes import draw
from scripts.benchmarks.figures_file import read_figures
from scripts.benchmarks.peer_data import write_data
from scripts.benchmarks.peer_environment import made_environment
from scripts.benchmarks.processor import processor
from scripts.benchmarks.training import CACHE, COMMON, ROOT
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.paths import conf_directory, quoted

EXPERIMENT = "experiment=tatoeba_best"
OURS = "ours"
DIM = 256
BEAM = "beam"  # search of the tests; validations are greedy
OUTPUT = ROOT / "docs/benchmarks/tatoeba_minutes.json"
Validations = dict[int, float | None]  # BLEU by update; None: not known yet
Settings = dict[str, str | float]


class Peer(NamedTuple):
    """A model of another program.

    Attributes:
        program: the name of its environment, and of the script that trains it.
        settings: those that differ from the benchmark of training.
    """

    program: str
    settings: Settings


TRANSFORMER: Settings = {"model": "transformer", "layers": 3, "heads": 4, "ff_dim": 512, "dropout": 0.1}
PEERS = {
    "joeynmt_rnn": Peer("joeynmt", {"model": "rnn", "dropout": 0.2, "lr": 0.003, "validation_updates": 200}),
    "joeynmt_transformer": Peer(
        "joeynmt", TRANSFORMER | {"lr": 0.002, "warmup_steps": 400, "validation_updates": 400}
    ),
    "opennmt_rnn": Peer(
        "opennmt",
        {"model": "rnn", "dropout": 0.2, "learning_rate": 0.003, "decay_method": "none", "warmup_steps": 400,
         "average_decay": 0.002, "validation_updates": 400},
    ),
    "opennmt_transformer": Peer(
        "opennmt",
        TRANSFORMER
        | {"learning_rate": 1.0, "decay_method": "noam", "warmup_steps": 800, "average_decay": 0.002,
           "validation_updates": 400},
    ),
}  # fmt: skip


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = read_results(options)
    for seed in options.seeds:
        for name in options.programs:
            if str(seed) not in results["programs"].get(name, {}):
                result = trained(name, seed, options) | {"machine": machine()}
                results["programs"].setdefault(name, {})[str(seed)] = result
                with replacing(options.output) as stream:
                    stream.write((json.dumps(results, indent=1) + "\n").encode())
    print(f"wrote {draw(options.output)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [OURS, *PEERS]
    parser.add_argument("--data", type=Path, help="fra.txt; default: download")
    parser.add_argument("--programs", nargs="+", default=names, choices=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="1 2 3")
    parser.add_argument("--minutes", type=float, default=30.0, help="%(default)g")
    parser.add_argument("--threads", type=int, default=2, help="%(default)s")
    parser.add_argument("--override", nargs="*", default=[], help="overrides of our train.py")
    parser.add_argument(
        "--setting", nargs="*", default=[], metavar="NAME=NUMBER", help="changed settings of the others"
    )
    parser.add_argument("--environments", type=Path, default=CACHE / "peers", help="folder of their environments")
    parser.add_argument("--runs", type=Path, default=Path("runs/tatoeba_minutes"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="figures; the page is written beside them")
    return parser.parse_args(arguments)


def read_results(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures that are there.

    Raises:
        UserError: if they are those of another number of minutes or threads, or of other settings.
    """
    asked = {name: getattr(options, name) for name in ("minutes", "threads", "override", "setting")}
    if not options.output.is_file():
        return {**asked, "dim": DIM, "programs": {}}
    results = read_figures(options.output, "programs")
    for name, value in asked.items():
        if results[name] != value:
            raise UserError(
                f"{options.output} has runs of {name} {results[name]}, not {value}; give another --output for these"
            )
    return results


def machine() -> dict[str, str]:
    return {"processor": processor(), "torch": torch.__version__}


def trained(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train a program; return its curve, its test and what was trained on."""
    config = composed(overrides(options))
    folder = options.runs.resolve() / name / str(seed)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
    shared, splits = write_data(config, folder / "data")
    sizes = {"tokens": shared["tokens"], "sentences": {split: len(pairs) for split, pairs in splits.items()}}
    if name == OURS:
        return train_ours(options, folder / "run", seed) | sizes
    settings = COMMON | shared | {
        "dim": DIM,
        "batch_tokens": config.batch_tokens,
        "beam_size": composed([f"search={BEAM}"]).search.beam_size,
        **PEERS[name].settings,
        **changed(options.setting),
        "seed": seed,
    }  # fmt: skip
    return train_peer(PEERS[name].program, settings, folder / "data", splits, options) | sizes


def changed(settings: Sequence[str]) -> dict[str, float]:
    """Return numbers by name.

    Raises:
        UserError: if one is not NAME=NUMBER.
    """
    try:
        pairs = [setting.split("=") for setting in settings]
        return {name: int(number) if number.isdecimal() else float(number) for name, number in pairs}
    except ValueError as error:
        raise UserError(f"--setting {' '.join(settings)} is not NAME=NUMBER ...; use for example lr=0.001") from error


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


def train_ours(options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        *overrides(options),
        f"seed={seed}",
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
        "settings": overrides(options),
    }


def train_peer(
    program: str, settings: dict[str, Any], folder: Path, splits: Any, options: argparse.Namespace
) -> dict[str, Any]:
    """Train another program on the data in a folder, where it leaves translations of both sets in model/.

    They are N.hyps of the validation set after update N, and best.hyps.test of the test set.
    """
    (folder / "settings.json").write_text(json.dumps(settings))
    python = made_environment(program, options.environments.expanduser())
    script = ROOT / f"scripts/benchmarks/learn_with_{program}.py"
    command = [str(python), str(script), str(folder), str(options.minutes)]
    output = folder / "model"

    def validations() -> Validations:
        return dict.fromkeys(sorted(WEIGHTS[program].found(folder, len(splits["val"]))))

    curve = watched(command, folder.parent / "log.txt", options, validations)
    for point in curve:
        point["bleu"] = bleu(lines_of(output / f"{point['updates']}.hyps"), splits["val"].references)
    return {
        "curve": curve,
        "test_bleu": bleu(lines_of(output / "best.hyps.test"), splits["test"].references),
        "parameters": WEIGHTS[program].parameters(folder),
        "updates": curve[-1]["updates"],
        "settings": settings,
    }


class Weights(NamedTuple):
    """What a program leaves in its folder.

    Attributes:
        found: the updates of which there are weights, or with JoeyNMT all translations of the validation set.
        parameters: the number of parameters, with tied weights counted once.
    """

    found: Callable[[Path, int], list[int]]
    parameters: Callable[[Path], int]


def joeynmt_updates(folder: Path, sentences: int) -> list[int]:
    complete = (file for file in (folder / "model").glob("*.hyps") if file.stem.isdecimal())
    return [int(file.stem) for file in complete if len(lines_of(file)) == sentences]


def joeynmt_parameters(folder: Path) -> int:
    return size(torch.load(folder / "model" / "best.ckpt", map_location="cpu", weights_only=False)["model_state"])


def opennmt_updates(folder: Path, _: int) -> list[int]:
    return [int(file.stem.rpartition("_")[2]) for file in folder.glob("model_step_*.pt")]


def opennmt_parameters(folder: Path) -> int:
    """Return the number that OpenNMT prints, since its checkpoint repeats tied weights."""
    lines = (folder.parent / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    return int(next(line.rpartition(" ")[2] for line in lines if "* number of parameters:" in line))


def size(state: dict[str, Tensor]) -> int:
    return sum({weight.data_ptr(): weight.numel() for weight in state.values()}.values())


WEIGHTS = {
    "joeynmt": Weights(joeynmt_updates, joeynmt_parameters),
    "opennmt": Weights(opennmt_updates, opennmt_parameters),
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


if __name__ == "__main__":
    main()
