"""docs/tasks.md: its commands compose, and its weight of a temperature is that of its formula."""

from __future__ import annotations

import math
import re
import shlex

import pytest
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir
from test_readme import jobs

PAGE = (ROOT / "docs" / "tasks.md").read_text("utf-8")
COMMANDS = re.findall(r"^python (train|evaluate)\.py (.+)$", PAGE, re.MULTILINE)


def test_the_weight_of_a_temperature_is_that_of_its_formula() -> None:
    large, small, temperature = 1_000_000, 10_000, 5
    assert f"{large:,} French and {small:,} German pairs" in PAGE
    weight = (small / large) ** (1 / temperature - 1)
    assert f"`data.weights.german={weight:.1f}`" in PAGE
    share = small * weight / (large + small * weight)
    assert f"and {share:.0%}".replace("%", " %") in PAGE
    assert math.isclose(small * weight / large, (small / large) ** (1 / temperature))


@pytest.mark.parametrize(("name", "overrides"), COMMANDS)
def test_a_command_composes(name: str, overrides: str) -> None:
    if name == "train":
        assert [composed(*job).model for job in jobs(f"python train.py {overrides}")]
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("evaluate", shlex.split(overrides)).ckpt_path in ("model.ckpt", "runs/train/both")
