"""BLEU by minutes of training, ours and that of others: `python -m scripts.benchmarks.minutes --data fra.txt`.

All train on Tatoeba with one joint vocabulary, and with the same sentences for validation and test: the recurrent model
of an experiment of ours, and the models of JoeyNMT and OpenNMT-py, recurrent ones of that size and Transformers.
Minutes count from the start of the command; ours ends after the epochs of its schedule. The programs run one after the
other, on equally many threads. The translations of all are scored by our BLEU against all references. The figures are
written after each run, and no run that is among them is repeated: the same command continues after an interruption.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir

from scripts.benchmarks.draw_minutes import draw
from scripts.benchmarks.figures_file import read_figures
from scripts.benchmarks.homes import alone
from scripts.benchmarks.peer_data import lines_of, write_data
from scripts.benchmarks.peer_environment import made_environment
from scripts.benchmarks.processor import processor
from scripts.benchmarks.training import CACHE, COMMON, ROOT
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.paths import conf_directory, quoted
from seq2seq_attn.training.provenance import commit

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
        settings: those that differ from the benchmark of training. batch_tokens counts padding; JoeyNMT does not sort
            sentences by length, and half of its tokens are padding.
    """

    program: str
    settings: Settings


TRANSFORMER: Settings = {"model": "transformer", "layers": 3, "heads": 4, "ff_dim": 512, "dropout": 0.1}
PEERS = {  # rates were tried on the validation set; the page says where the schedules are from
    "joeynmt_rnn": Peer(
        "joeynmt",
        {"model": "rnn", "batch_tokens": 8192, "dropout": 0.2, "lr": 0.003, "embed_init_weight": 0.1}
        | {"validation_updates": 200},
    ),
    "joeynmt_transformer": Peer(
        "joeynmt", TRANSFORMER | {"batch_tokens": 8192, "lr": 0.5, "warmup_steps": 400, "validation_updates": 400}
    ),
    "opennmt_rnn": Peer(
        "opennmt",
        {"model": "rnn", "batch_tokens": 4096, "dropout": 0.2, "lr": 0.003, "average_decay": 0.002}
        | {"validation_updates": 400, "decay_after": 2400, "decay_every": 600},
    ),
    "opennmt_transformer": Peer(
        "opennmt",
        TRANSFORMER
        | {"batch_tokens": 4096, "lr": 1.0, "warmup_steps": 800, "average_decay": 0.002, "validation_updates": 400},
    ),
}


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    changed(options.setting)
    options.runs.mkdir(parents=True, exist_ok=True)
    failed = []
    with alone(options.runs):
        results = read_results(options)
        check_settings(results["programs"], options)
        for seed in options.seeds:
            for name in options.programs:
                if str(seed) in results["programs"].get(name, {}):
                    continue
                try:
                    result = trained(name, seed, options) | {"machine": machine(), "commit": commit()}
                except ProgramError as error:
                    print(error, file=sys.stderr)
                    failed.append(f"{name} with seed {seed}")
                    continue
                results["programs"].setdefault(name, {})[str(seed)] = result
                with replacing(options.output) as stream:
                    stream.write((json.dumps(results, indent=1) + "\n").encode())
    if results["programs"]:
        print(f"wrote {draw(options.output)}")
    if failed:
        raise UserError(f"{', '.join(failed)} failed; repeat the command to run them again")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [OURS, *PEERS]
    parser.add_argument("--data", type=Path, help="fra.txt; default: download")
    parser.add_argument("--programs", nargs="+", default=names, choices=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="1 2 3")
    parser.add_argument("--minutes", type=float, default=30.0, help="%(default)g")
    parser.add_argument("--threads", type=int, default=2, help="%(default)s")
    parser.add_argument("--experiment", default="tatoeba_best", help="our model (%(default)s)")
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
        UserError: if they are those of another number of minutes or threads, or of other settings, or of an old form.
    """
    asked = {name: getattr(options, name) for name in ("minutes", "threads", "override", "setting", "experiment")}
    if not options.output.is_file():
        return {**asked, "dim": DIM, "programs": {}}
    results = read_figures(options.output, "programs")
    for name, value in asked.items():
        if results.get(name) != value:
            raise UserError(
                f"{options.output} has runs of {name} {results.get(name)}, not {value}; give another --output for these"
            )
    return results


def check_settings(programs: dict[str, Any], options: argparse.Namespace) -> None:
    """Check that no page gets runs of two machines, and that those of a program with new ones have today's settings.

    Raises:
        UserError: if new runs would be compared by minutes with those of another machine, or averaged with those of
            other settings.
    """
    lacking = [
        name for name in options.programs if any(str(seed) not in programs.get(name, {}) for seed in options.seeds)
    ]
    if lacking:
        check_machine(programs, options.output)
    for name in lacking:
        runs = programs.get(name, {})
        if name == OURS:
            check_epochs(runs, options)
            continue
        expected = PEERS[name].settings | changed(options.setting)
        for key, value in expected.items():
            others = [run["settings"].get(key) for run in runs.values() if run["settings"].get(key) != value]
            if others:
                was = "none" if others[0] is None else others[0]
                raise UserError(
                    f"{options.output} has runs of {name} with {key} {was}, not {value}; give another --output"
                )


def check_epochs(runs: dict[str, Any], options: argparse.Namespace) -> None:
    """Refuse further seeds of ours where the experiment has changed, which the number of its epochs tells."""
    known = {run["epochs"] for run in runs.values() if "epochs" in run}
    if not known:
        return
    epochs = composed(overrides(options)).trainer.max_epochs
    if others := known - {epochs}:
        raise UserError(
            f"{options.output} has runs of ours with {others.pop()} epochs, and experiment={options.experiment} has "
            f"{epochs} today; give another --output"
        )


def check_machine(programs: dict[str, Any], output: Path) -> None:
    for name, runs in programs.items():
        for run in runs.values():
            if run["machine"] != machine():
                was = ", torch ".join(run["machine"].values())
                raise UserError(f"{output} has runs of {name} on {was}; give another --output for this machine")


def machine() -> dict[str, str]:
    return {"processor": processor(), "torch": torch.__version__}


def trained(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train a program and test it; return its curve, its test and what it was trained on.

    A training that has ended is not repeated if what follows it fails.
    """
    folder = options.runs.resolve() / options.output.stem / name / str(seed)
    task, curve = folder / "task.json", folder / "curve.json"
    program = None if name == OURS else PEERS[name].program
    if not curve.is_file():
        for part in ("data", "run"):  # of a training that was interrupted
            shutil.rmtree(folder / part, ignore_errors=True)
        write_json(task, write_task(name, seed, folder / "data", options))
        if program is None:
            points = train_ours(options, folder / "run", seed)
        else:
            points = train_peer(program, folder / "data", options)
        write_json(curve, points)
    given, points = (json.loads(file.read_text(encoding="utf-8")) for file in (task, curve))
    if program is None:
        tested = score_ours(folder / "run")
    else:
        tested = score_peer(program, folder / "data", points, given["references"], options)
    return tested | {"curve": points, "settings": given["settings"], **given["sizes"]}


def write_json(file: Path, values: Any) -> None:
    with replacing(file) as stream:
        stream.write(json.dumps(values).encode())


def write_task(name: str, seed: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the data of a run; return its settings, references and sizes."""
    config = composed([*overrides(options), *data_path(options)])
    shared, splits = write_data(config, folder)
    settings: Any = overrides(options)
    if name != OURS:
        settings = COMMON | shared | {
            "dim": DIM,
            "beam_size": composed([f"search={BEAM}"]).search.beam_size,
            **PEERS[name].settings,
            **changed(options.setting),
            "seed": seed,
        }  # fmt: skip
        write_json(folder / "settings.json", settings)
    sizes = {"tokens": shared["tokens"], "sentences": {split: len(pairs) for split, pairs in splits.items()}}
    references = {split: splits[split].references for split in ("val", "test")}
    return {
        "settings": settings,
        "references": references,
        "sizes": sizes | {"epochs": config.trainer.max_epochs} if name == OURS else sizes,
    }


def changed(settings: Sequence[str]) -> dict[str, float]:
    """Return numbers by name.

    Raises:
        UserError: if one is not NAME=NUMBER, or no program has the name.
    """
    names = sorted({name for peer in PEERS.values() for name in peer.settings if name != "model"})
    try:
        pairs = [setting.split("=") for setting in settings]
        numbers = {name: int(number) if number.isdecimal() else float(number) for name, number in pairs}
    except ValueError as error:
        raise UserError(f"--setting {' '.join(settings)} is not NAME=NUMBER ...; use for example lr=0.001") from error
    for name in numbers:
        if name not in names:
            raise UserError(f"--setting {name}: no program has it; the settings are {', '.join(names)}")
    return numbers


def overrides(options: argparse.Namespace) -> list[str]:
    sizes = [f"model.{part}={DIM}" for part in ("embedding_dim", "encoder.dim", "decoder.dim")]
    return [
        f"experiment={options.experiment}",
        *sizes,
        "search=greedy",
        "model.tie_embeddings=all",
        f"num_threads={options.threads}",
        *options.override,
    ]


def data_path(options: argparse.Namespace) -> list[str]:
    """Return the override that names the corpus, which is no setting of the figures: it is a path of one machine."""
    return [f"data.path={quoted(options.data.resolve())}"] if options.data else []


def composed(given: Sequence[str]) -> Any:
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        return compose("train", overrides=list(given))


def train_ours(options: argparse.Namespace, folder: Path, seed: int) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        *overrides(options),
        *data_path(options),
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

    return watched(command, folder.with_suffix(".log"), options, validations)


def score_ours(folder: Path) -> dict[str, Any]:
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
    ended(test, folder.with_name("beam.log"), os.environ)
    evaluation = json.loads((folder / "beam" / "evaluation.json").read_text(encoding="utf-8"))
    return {
        "test_bleu": evaluation["splits"]["test"]["bleu"],
        "parameters": results["num_parameters"],
        "updates": results["steps"],
    }


def train_peer(program: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train another program on the data in a folder; return its validations, whose BLEU is not known yet."""
    outputs = OUTPUTS[program]
    sentences = len(lines_of(folder / f"val.{json.loads((folder / 'settings.json').read_text())['target']}"))
    command = [*learning(program, folder, options), str(options.minutes)]

    def validations() -> Validations:
        return dict.fromkeys(sorted(outputs.updates(folder, sentences)))

    return watched(command, folder.with_name("run.log"), options, validations)


def score_peer(
    program: str,
    folder: Path,
    curve: list[dict[str, Any]],
    references: dict[str, list[list[str]]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Fill in the BLEU of the curve; return that of the test.

    Translations of the validation set after update N are in model/N.hyps, those of the test in model/best.hyps.test.
    """
    translations = folder / "model"
    if OUTPUTS[program].translates_later:
        ended(learning(program, folder, options), folder.with_name("translations.log"), environment(options))
    for point in curve:
        point["bleu"] = bleu(lines_of(translations / f"{point['updates']}.hyps"), references["val"])
    return {
        "test_bleu": bleu(lines_of(translations / "best.hyps.test"), references["test"]),
        "parameters": OUTPUTS[program].num_parameters(folder),
        "updates": curve[-1]["updates"],
    }


def learning(program: str, folder: Path, options: argparse.Namespace) -> list[str]:
    python = made_environment(program, options.environments.expanduser())
    return [str(python), str(ROOT / f"scripts/benchmarks/learn_with_{program}.py"), str(folder)]


class Outputs(NamedTuple):
    """What a program leaves in its folder.

    Attributes:
        updates: those after which there are translations of the validation set, or weights to make them with.
        num_parameters: with tied weights counted once.
        translates_later: whether its script, without a number of minutes, makes the translations.
    """

    updates: Callable[[Path, int], list[int]]
    num_parameters: Callable[[Path], int]
    translates_later: bool


def joeynmt_updates(folder: Path, sentences: int) -> list[int]:
    complete = (file for file in (folder / "model").glob("*.hyps") if file.stem.isdecimal())
    return [int(file.stem) for file in complete if len(lines_of(file)) == sentences]


def joeynmt_num_parameters(folder: Path) -> int:
    """Return the number of its weights; its checkpoint also holds the table of sinusoidal positions."""
    state = torch.load(folder / "model" / "best.ckpt", map_location="cpu", weights_only=False)["model_state"]
    weights = {weight.data_ptr(): weight.numel() for name, weight in state.items() if not name.endswith(".pe.pe")}
    return sum(weights.values())


def opennmt_updates(folder: Path, _: int) -> list[int]:
    return [int(file.stem.rpartition("_")[2]) for file in folder.glob("model_step_*.pt")]


def opennmt_num_parameters(folder: Path) -> int:
    """Return the number that OpenNMT prints, since its checkpoint repeats tied weights."""
    lines = folder.with_name("run.log").read_text(encoding="utf-8", errors="replace").splitlines()
    return int(next(line.rpartition(" ")[2] for line in lines if "* number of parameters:" in line))


OUTPUTS = {
    "joeynmt": Outputs(joeynmt_updates, joeynmt_num_parameters, translates_later=False),
    "opennmt": Outputs(opennmt_updates, opennmt_num_parameters, translates_later=True),
}


def environment(options: argparse.Namespace) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def ended(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
    """Run a program to its end.

    Raises:
        ProgramError: if it fails.
    """
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=variables).returncode
    if code:
        raise failure(command, log)


class ProgramError(UserError):
    """A program failed, which does not keep the others from running."""


def failure(command: Sequence[str], log: Path) -> ProgramError:
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    return ProgramError(f"{' '.join(command)} failed: {' / '.join(last)}")


def watched(
    command: Sequence[str], log: Path, options: argparse.Namespace, validations: Callable[[], Validations]
) -> list[dict[str, Any]]:
    """Run a program; return its validations with the minutes since its start, to a second.

    Raises:
        ProgramError: if it fails.
    """
    curve: dict[int, dict[str, Any]] = {}
    with log.open("w", encoding="utf-8") as out:
        started = time.monotonic()
        program = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(options))
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
                        print(f"{log.parent.parent.name}: {minutes:.1f} min, {updates} updates{bleu_text}", flush=True)
        finally:
            program.kill()
    if program.returncode or not curve:
        raise failure(command, log)
    return list(curve.values())


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    metric = BLEU(lowercase=False, tokenize="13a")
    metric.update(hypotheses, references)
    return metric.compute().item()


if __name__ == "__main__":
    main()
