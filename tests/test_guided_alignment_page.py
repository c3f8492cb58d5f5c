"""docs/guided_alignment.md: its commands compose, and its tables have every option and every normalizer."""

from __future__ import annotations

import re
import shlex

import pytest
from configs import ROOT, composed, options

PAGE = (ROOT / "docs" / "guided_alignment.md").read_text("utf-8")
COMMANDS = re.findall(r"^python train\.py (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("overrides", COMMANDS)
def test_a_command_composes(overrides: str) -> None:
    assert composed(*shlex.split(overrides)).guided_alignment.links


def test_every_option_has_its_row_with_its_default() -> None:
    table = dict(re.findall(r"^\| `guided_alignment\.(\w+)` \| `?([^`|]+?)`? \|", PAGE, re.MULTILINE))
    defaults = {name: value for name, value in composed().guided_alignment.items() if name != "_target_"}
    assert table == {name: "null" if value is None else str(value).lower() for name, value in defaults.items()}


def test_every_normalizer_is_named() -> None:
    assert [name for name in options("attention/normalizer") if f"`{name}`" not in PAGE] == []
