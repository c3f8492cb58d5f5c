"""Rich's console for text that is not ours: file names, options and sentences."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def plain_console(**options: Any) -> Console:
    """One that prints `[`, and what looks like an emoji code, as they are."""
    return Console(markup=False, emoji=False, **options)
