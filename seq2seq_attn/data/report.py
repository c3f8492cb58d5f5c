"""What reading and cleaning did to a corpus, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class CleaningReport:
    """Counts in the order of the steps: "train: pairs read", "train: dropped, empty side", ..."""

    counts: dict[str, int]
