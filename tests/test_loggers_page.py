"""docs/loggers.md: every logger of conf/logger is on it, and its commands compose."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import ROOT, composed, options

from seq2seq_attn.options import TRAIN, check_options

PAGE = (ROOT / "docs" / "loggers.md").read_text("utf-8")
COMMANDS = re.findall(r"^python train\.py (.+)$", PAGE, re.MULTILINE)


def test_every_logger_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(options("logger"))
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    choices = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    config = composed(*shlex.split(command), *choices, "paths.run_dir=run")
    check_options(config, {"logger": TRAIN["logger"]})
    assert config.logger
