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
BLOCKS = "\n".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CHOICES = [f"choices.{name}=null" for name in ("attention", "model", "data")]


@pytest.mark.parametrize("command", re.findall(r"train\.py (.+)", BLOCKS))
def test_a_training_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    config = composed(*shlex.split(command), *CHOICES, "paths.run_dir=run")
    choose_monitor(config)
    check_options(config, TRAIN)


@pytest.mark.parametrize("command", re.findall(r"evaluate\.py (.+)", BLOCKS))
def test_an_evaluation_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", [*shlex.split(command), "paths.run_dir=run", *CHOICES[2:]])
    check_options(config, EVALUATE)


def test_there_are_commands_and_none_adds_an_option() -> None:
    assert len(re.findall(r"\.py ", BLOCKS)) >= 9
    assert "+" not in BLOCKS
