"""The commands of docs/alignment.md compose, and name files as the page explains them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir

PAGE = (Path(__file__).parents[1] / "docs" / "alignment.md").read_text(encoding="utf-8")
BLOCKS = "".join(re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^(?:seq2seq-attn |python )(align|train|translate)(?:\.py)? (.+)$", BLOCKS, re.MULTILINE)


def test_every_command_is_tried() -> None:
    assert len(COMMANDS) == len(BLOCKS.splitlines()) >= 9


@pytest.mark.parametrize(("name", "overrides"), COMMANDS)
def test_a_command_composes(name: str, overrides: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(name, shlex.split(overrides))
    assert name == "train" or config.get("ckpt_path") or config.links


def test_every_option_of_a_link_is_on_the_page() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        options = [name for name in compose("align") if str(name).startswith("alignment_")]
    assert [name for name in options if f"`{name}=" not in PAGE and f" {name}=" not in PAGE] == []
