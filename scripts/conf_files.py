"""The content of the files of `conf/` that pages and tables of the documentation are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from seq2seq_attn.cli.choices import choices

CONF = Path(__file__).parents[1] / "conf"
ATTENTION = CONF / "attention"


def presets() -> list[str]:
    """Return the names of the attention presets."""
    return list(choices("attention"))


def parts_of(preset: str) -> dict[str, str]:
    """Return the option of each part that an attention preset has."""
    defaults = parsed(ATTENTION / f"{preset}.yaml")["defaults"]
    chosen = [entry for entry in defaults if isinstance(entry, dict)]
    return {part: option for entry in chosen for part, option in entry.items() if option is not None}


def parsed(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
