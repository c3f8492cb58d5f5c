"""docs/data.md: its commands compose, and the lines that prepare text do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from child import done
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir
from small_run import write_pairs

from seq2seq_attn.options import EVALUATE, TRAIN, check_options
from seq2seq_attn.training.monitor import choose_monitor

PAGE = (ROOT / "docs" / "data.md").read_text("utf-8")
BLOCKS = "".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CHOICES = [f"choices.{name}=null" for name in ("attention", "model", "data")]


@pytest.mark.parametrize("command", re.findall(r"^python train\.py (.+)$", BLOCKS, re.MULTILINE))
def test_a_training_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    config = composed(*shlex.split(command), *CHOICES, "paths.run_dir=run")
    choose_monitor(config)
    check_options(config, TRAIN)


@pytest.mark.parametrize("command", re.findall(r"^python evaluate\.py (.+)$", BLOCKS, re.MULTILINE))
def test_an_evaluation_of_the_page_composes(command: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        check_options(compose("evaluate", [*shlex.split(command), "paths.run_dir=run", *CHOICES[2:]]), EVALUATE)


@pytest.mark.parametrize("command", re.findall(r"^seq2seq-attn prepare (.+)$", BLOCKS, re.MULTILINE))
def test_a_preparation_of_the_page_composes(command: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("prepare", [*shlex.split(command), *CHOICES]).data


def line_of(start: str) -> str:
    (line,) = (line for line in BLOCKS.splitlines() if line.startswith(start))
    return re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", line)


def test_pairs_of_equal_sides_are_dropped_and_subwords_are_joined(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\ta b\nb\tc d\n1\t1.0\n", encoding="utf-8")
    (tmp_path / "segmented.en").write_text("a libr@@ ar@@ y .\nyes\n", encoding="utf-8")
    for start in ("awk", "sed"):
        subprocess.run(["bash", "-c", line_of(start)], cwd=tmp_path, check=True)
    assert (tmp_path / "train.en").read_text("utf-8") == "a library .\nyes\n"
    assert (tmp_path / "kept.tsv").read_text("utf-8") == "b\tc d\n1\t1.0\n"


@pytest.mark.slow
def test_a_sentencepiece_model_with_other_options_is_trained_and_read(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "train.tsv").read_text("utf-8").splitlines()]
    for side, language in enumerate(("en", "fr")):
        text = "".join(f"{row[side]}\n" for row in rows)
        (tmp_path / f"train.{language}").write_text(text, encoding="utf-8")
    line = line_of("python -c").replace("--vocab_size=8000", "--vocab_size=40")
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True, capture_output=True)
    (command,) = re.findall(r"^python train\.py (.+ tokenizer\.model=spm\.model)$", BLOCKS, re.MULTILINE)
    small = ["debug=fast", "paths.cache_dir=cache", "hydra.run.dir=run"]
    ran = done(ROOT / "train.py", *shlex.split(command), *small, folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
