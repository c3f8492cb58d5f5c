"""docs/tasks.md: its commands compose, and its weight of a temperature is the one that a mixture gives."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir
from test_readme import jobs

from seq2seq_attn.data.store.corpus_weights import Mixture

PAGE = (ROOT / "docs" / "tasks.md").read_text("utf-8")
COMMANDS = re.findall(r"^python (train|evaluate)\.py (.+)$", PAGE, re.MULTILINE)


def test_the_weight_of_a_temperature_is_the_one_that_a_mixture_gives() -> None:
    large, small = 1_000_000, 10_000
    assert f"{large:,} French and {small:,} German pairs" in PAGE
    weight = Mixture({}, seed=1, temperature=5.0).weights_of({"french": large, "german": small})["german"]
    assert f"weight {weight:.1f}," in " ".join(PAGE.split())
    share = small * weight / (large + small * weight)
    assert f"and {share:.0%}".replace("%", " %") in PAGE


@pytest.mark.parametrize(("name", "overrides"), COMMANDS)
def test_a_command_composes(name: str, overrides: str) -> None:
    if name == "train":
        assert [composed(*job).model for job in jobs(f"python train.py {overrides}")]
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("evaluate", shlex.split(overrides)).ckpt_path in ("model.ckpt", "runs/train/both")
