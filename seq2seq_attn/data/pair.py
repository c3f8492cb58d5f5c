"""One sentence and its translation."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """`reference` is the target as the file has it, for scoring; the other two are cleaned."""

    source: str
    target: str
    reference: str
