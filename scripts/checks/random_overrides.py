"""Fuzz the commands with random overrides: each must succeed or print one sentence.

`python -m scripts.checks.random_overrides --cases 200 --seed 1`; each case runs in its own process and folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.cli.config_errors import sentence_of_composition
from seq2seq_attn.errors import sentence_of
from seq2seq_attn.evaluation.evaluate import evaluate
from seq2seq_attn.inference.translate import translate
from seq2seq_attn.training.run import train

CONF = Path(__file__).parents[2] / "conf"
COMMANDS: dict[str, Callable[[DictConfig], Any]] = {"train": train, "translate": translate, "evaluate": evaluate}
FAST = [
    "debug=fast",
    "search.limits.max_length=20",
    "trainer.limit_train_batches=2",
    "trainer=cpu",
    "trainer.enable_progress_bar=false",
    "num_threads=1",
]
VALUES = (
    "nan", "inf", "-inf", "-1", "0", "1", "0.5", "1e9", "1000000000", "null", "[]", "{}", "[1,2]", "[nope]", "{a:1}",
    "text", "true", "false", "''", "x" * 5000, "'žürich→日本'", "../../x", "${nope}", "'???'", "'a b'", "-0.5", "1e-9",
)  # fmt: skip


def composed(command: str, overrides: list[str]) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(command, overrides)


def options(config: DictConfig) -> dict[str, Any]:
    """Return the default of every option and group of options, by its path."""

    def below(node: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, child in node.items() if isinstance(node, dict) else ():
            yield f"{path}{name}", child
            yield from below(child, f"{path}{name}.")

    return dict(below(OmegaConf.to_container(config, resolve=True), ""))


def answer(command: str, overrides: list[str]) -> str:
    """Run a command; return the message with which it ends, empty for success, or raise the exception of a bug."""
    try:
        config = composed(command, overrides)
    except Exception as error:
        if sentence := sentence_of_composition(error, CONF, command, overrides):
            return sentence
        raise
    try:
        COMMANDS[command](config)
    except Exception as error:
        if sentence := sentence_of(error):
            return sentence
        raise
    return ""


def drawn(random: Random, bases: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """Draw a command and a random override, in half of the cases of the type of the default."""
    command, base = random.choice(bases)
    key, default = random.choice(list(options(composed(command, base)).items()))
    alike = [value for value in VALUES if type(yaml.safe_load(value)) is type(default)]
    return command, [*base, f"{key}={random.choice(alike if alike and random.random() < 0.5 else VALUES)}"]


def in_own_process(command: str, overrides: list[str], folder: Path, seconds: float) -> str | None:
    """Run a command in a child process; return what is wrong with how it ended, or None."""
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        with Path("output.txt").open("w") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            sentence = answer(command, overrides)
            print(f"ANSWER {sentence}", flush=True)
            os._exit(2 if "\n" in sentence else 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    end = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"no answer in {seconds:g} s"
        time.sleep(0.02)
    output = (folder / "output.txt").read_text(errors="replace")
    return None if ended[1] == 0 else output[-3000:] or f"ended by signal {ended[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="time limit of a case")
    arguments = parser.parse_args()
    random, faults = Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        given = [*FAST, f"paths.cache_dir={top / 'cache'}"]
        given += [f"choices.{choice}=null" for choice in ("attention", "model", "data")]
        trained = ["model=rnn", *given, f"paths.run_dir={top / 'trained'}"]
        if fault := in_own_process("train", trained, top / "first", 600):
            sys.exit(f"the run to translate with fails: {fault}")
        run_dir = "paths.run_dir=run"
        bases = [("train", [f"model={model}", *given, run_dir]) for model in ("rnn", "transformer", "conv")]
        given = [f"ckpt_path={top / 'trained'}", "device=cpu", "num_threads=1"]
        (top / "few.tsv").write_text("Who is there?\tQui est là ?\nA cat.\tUn chat.\n" * 5)
        data = ["data=parallel", *(f"data.{split}={top / 'few.tsv'}" for split in ("train", "val", "test"))]
        bases += [("translate", given), ("evaluate", [*given, *data, run_dir, "choices.data=null"])]
        for number in range(arguments.cases):
            command, overrides = drawn(random, bases)
            began = time.monotonic()
            folder = top / str(number) / "deep" / "er"
            fault = in_own_process(command, overrides, folder, arguments.seconds)
            last = (folder / "output.txt").read_text(errors="replace").rpartition("ANSWER ")[2].strip()
            summary = f"{number:4} {time.monotonic() - began:5.1f} s  {command} {overrides[0]} {overrides[-1][:90]}"
            print(summary, "|", "FAULT" if fault else last[:150], flush=True)
            if fault:
                faults += 1
                print(fault, flush=True)
    print(f"{arguments.cases} cases with seed {arguments.seed}: {faults} failed")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
