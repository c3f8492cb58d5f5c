"""A file of pairs, in any format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from seq2seq_attn.data.store.pair_source import PairSource

HEAD = 100  # rows from which the form of a file is taken
LINE_ENDS = re.compile(r"[\r\n]+")


class PairFile(PairSource):
    """A file with both sides of each pair.

    Attributes:
        origins: where the source and the target are read, such as "column 2".
        positions: of the two columns, from 0.
    """

    origins: tuple[str, str]
    positions = (0, 1)

    def __init__(self, path: Path) -> None:
        self.files, self.path = (path,), path

    def options(self) -> list[Any]:
        return [*self.origins, self.has_header, *self.positions]


def join_lines(text: str) -> str:
    """Return the text with a blank for each run of line ends."""
    return LINE_ENDS.sub(" ", text)
