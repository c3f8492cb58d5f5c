"""Text for a terminal, a message or a row of a table: on one line, without control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


LINE_END = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]")  # and what else separates rows or columns
# C0, DEL, C1, the overrides and isolates of bidirectional text, and half surrogate pairs, which UTF-8 cannot hold
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with a blank for each tab and line end, and U+FFFD for each other control character."""
    return text if text.isprintable() else CONTROL.sub("\ufffd", LINE_END.sub(" ", text))


def plain_console(**options: Any) -> Console:
    """Return Rich's console for text that is not ours: it reads no markup and no emoji code."""
    from rich.console import Console  # 0.1 s that an import of an attention layer does not pay

    return Console(markup=False, emoji=False, **options)


def new_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """Return Rich's table; all columns but the first are right-aligned, as numbers are."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*row)
    return table
