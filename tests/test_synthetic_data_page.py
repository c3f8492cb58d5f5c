"""The commands of the page about synthetic pairs compose, with options of the right types, and run in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir
from small_run import WORDS

from seq2seq_attn.options import EVALUATE, TRAIN, TRANSLATE, check_options
from seq2seq_attn.training.monitor import choose_monitor

PAGE = (ROOT / "docs" / "synthetic_data.md").read_text("utf-8")
COMMANDS = "".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).splitlines()
CHOICES = [f"choices.{name}=null" for name in ("attention", "model", "data")]


def overrides_of(program: str) -> list[str]:
    return re.findall(rf"^python {program}\.py (.+)", "\n".join(COMMANDS), re.MULTILINE)


@pytest.mark.parametrize("command", overrides_of("train"))
def test_a_training_of_the_page_composes(command: str) -> None:
    words = [word for word in shlex.split(command) if word != "-m" and not word.startswith("hydra.")]
    config = composed(*(word.replace("seed=1,2,3", "seed=1") for word in words), *CHOICES, "paths.run_dir=run")
    choose_monitor(config)
    check_options(config, TRAIN)


@pytest.mark.parametrize(("program", "options"), [("translate", TRANSLATE), ("evaluate", EVALUATE)])
def test_the_other_commands_of_the_page_compose(program: str, options: dict[str, object]) -> None:
    assert overrides_of(program)
    for command in overrides_of(program):
        words = [word for word in shlex.split(command) if not word.startswith("hydra.")]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(program, [*words, *(["paths.run_dir=run"] if program == "evaluate" else [])])
        check_options(config, options)


def write(folder: Path, name: str, sentences: int) -> None:
    lines = (" ".join(Random(f"{name}{row}").sample(WORDS, 3 + row % 5)) for row in range(sentences))
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lines_of(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines()


@pytest.mark.slow
def test_the_commands_of_the_page_run_one_after_another(tmp_path: Path) -> None:
    for name, sentences in (("train", 60), ("val", 8), ("test", 8)):
        write(tmp_path, f"{name}.en", sentences)
        write(tmp_path, f"{name}.fr", sentences)
    write(tmp_path, "french.txt", 40)
    tags = re.findall(r"`(sed .+? > tagged\.en)`", PAGE)
    for command in [*COMMANDS, *tags]:
        typed = re.sub(r"^python (\w+\.py)", f"{shlex.quote(sys.executable)} {ROOT}/\\1", command)
        typed += " debug=fast data.cleaning.deduplicate=false" if " train.py " in f" {command} " else ""
        typed = typed.replace("head -n 20000", "head -n 30")
        subprocess.run(["bash", "-c", f"set -o pipefail; {typed}"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    assert len(lines_of(tmp_path / "distilled.fr")) == 60
    sides = [lines_of(tmp_path / name) for name in ("synthetic.en", "french.txt")]
    scores = [float(line.split("\t")[2]) for line in lines_of(tmp_path / "runs/scores/scores.tsv")]
    pairs = ["\t".join(pair) for pair in zip(*sides, strict=True)]
    assert len(pairs) == 40
    best = sorted(range(40), key=lambda row: -scores[row])[:30]
    assert lines_of(tmp_path / "kept.tsv") == [pairs[row] for row in best]
