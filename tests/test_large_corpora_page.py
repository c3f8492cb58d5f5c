"""Every command of the page about large corpora composes, and gives options of the right types."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir

from seq2seq_attn.options import EVALUATE, TRAIN, check_options
from seq2seq_attn.training.monitor import choose_monitor

PAGE = (ROOT / "docs" / "large_corpora.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = "\n".join(text for language, text in FENCES if not language)
CHOICES = [f"choices.{name}=null" for name in ("attention", "model", "data")]


@pytest.mark.parametrize("command", re.findall(r"train\.py (.+)", BLOCKS))
def test_a_training_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "-m":  # one job of the sweep
        words = [word.partition(",")[0] for word in words[1:]]
    config = composed(*words, *CHOICES, "paths.run_dir=run")
    choose_monitor(config)
    check_options(config, TRAIN)


@pytest.mark.parametrize("command", re.findall(r"seq2seq-attn prepare (.+)", BLOCKS))
def test_a_preparation_of_the_page_composes(command: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("prepare", [*shlex.split(command), *CHOICES]).data


@pytest.mark.parametrize("command", re.findall(r"evaluate\.py (.+)", BLOCKS))
def test_an_evaluation_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", [*shlex.split(command), "paths.run_dir=run", *CHOICES[2:]])
    check_options(config, EVALUATE)


def test_there_are_commands_and_none_adds_an_option() -> None:
    assert len(re.findall(r"\.py ", BLOCKS)) >= 12
    assert "+" not in BLOCKS
