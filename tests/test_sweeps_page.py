"""Every command of the page about sweeps composes."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import ROOT, composed
from test_readme import jobs

PAGE = (ROOT / "docs" / "sweeps.md").read_text("utf-8")
BLOCKS = "".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"\bpython train\.py (.+?)(?: &)?$", BLOCKS, re.MULTILINE)


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_of_a_command_composes(command: str) -> None:
    words = [word for word in shlex.split(command) if not word.startswith("hydra")]
    given = shlex.join(word for word in words if not re.search(r"\b(interval|choice)\(", word))  # drawn by Optuna
    assert [composed(*job).model for job in jobs(f"python train.py {given}")]
