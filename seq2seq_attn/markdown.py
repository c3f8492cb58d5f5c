"""Text escaped for Markdown: names, options and sentences are shown as they are and never become markup."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from seq2seq_attn.text import printable

BACKSLASHED = re.compile(r"([\\`*\[\]|]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.)", re.IGNORECASE)
ENTITIES = re.compile(r"[~$]|:(?=//)")  # not every renderer takes a backslash before these
BLOCK = re.compile(r"^(\d*(?=[.)])|#*)([#.)+](?=\s|$)|-)")  # a heading, an item of a list, a rule


def literal(text: str) -> str:
    """Return one line of Markdown that shows the text literally, in a cell of a table too."""
    safe = BACKSLASHED.sub(r"\\\1", escape(one_line(text), quote=False))
    return BLOCK.sub(r"\1\\\2", ENTITIES.sub(lambda match: f"&#{ord(match[0])};", safe))


def code(text: str) -> str:
    """Return a code span fenced by more backticks than the text has in a row."""
    line = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    gap = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table whose cells are shown literally."""
    lines = [head, ["---"] * len(head), *([literal(cell) for cell in row] for row in rows)]
    return "\n".join(" | ".join(line) for line in lines)


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))
