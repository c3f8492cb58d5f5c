"""docs/publishing.md: its commands are those that there are, and its tables list every file and every option."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import CONF, ROOT, composed
from hydra import compose, initialize_config_dir

from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.comparison.export_hub import card_options
from seq2seq_attn.comparison.model_card import OPTIONS

PAGE = (ROOT / "docs" / "publishing.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "hf":  # a tool of others, whose first argument is the name on the hub
        assert words[0] in ("upload", "download")
        assert (words[1], words[-1]) == ("USER/my-model", "my-model")
    elif program == "python":
        assert composed(*words[1:]).init_from.run == "my-model"
    elif words[0] == "export":
        assert " ".join(words[:2]) in SUBCOMMANDS
        card_options(words[4:])
    else:
        choices = ["choices.data=null", "paths.run_dir=run"] if words[0] == "evaluate" else []
        with initialize_config_dir(str(CONF), version_base="1.3"):
            assert compose(words[0], [*words[1:], *choices]).ckpt_path == "my-model"


def test_the_table_of_options_lists_every_option() -> None:
    assert all(f"`{name}=`" in PAGE for name in OPTIONS)
