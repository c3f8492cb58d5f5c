"""docs/tasks.md: its commands compose, and its table lists every metric."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import CONF, ROOT, composed, options
from hydra import compose, initialize_config_dir
from test_readme import jobs

PAGE = (ROOT / "docs" / "tasks.md").read_text("utf-8")
COMMANDS = re.findall(r"^python (train|evaluate)\.py (.+)$", PAGE, re.MULTILINE)


def test_every_metric_has_its_row() -> None:
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")))
    assert sorted(set(named) - {"metric"}) == options("metric")


@pytest.mark.parametrize(("name", "overrides"), COMMANDS)
def test_a_command_composes(name: str, overrides: str) -> None:
    if name == "train":
        assert [composed(*job).model for job in jobs(f"python train.py {overrides}")]
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("evaluate", shlex.split(overrides)).ckpt_path in ("model.ckpt", "runs/train/both")
