"""docs/optimizers.md: every optimizer and schedule of conf/ is on it, and its commands compose."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import ROOT, composed, options

from seq2seq_attn.options import TRAIN, check_options

PAGE = (ROOT / "docs" / "optimizers.md").read_text("utf-8")
COMMANDS = re.findall(r"^python train\.py (.+)$", PAGE, re.MULTILINE)
CHOSEN = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))


def test_every_optimizer_and_every_schedule_is_on_the_page() -> None:
    assert set(options("optimizer")) | set(options("scheduler")) <= CHOSEN
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    config = composed(*shlex.split(command), "paths.run_dir=run")
    check_options(config, {name: TRAIN[name] for name in ("optimizer", "scheduler")})
