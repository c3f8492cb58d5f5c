"""metrics.csv: one row for each call of the logger, on the disk before a checkpoint refers to it."""

from __future__ import annotations

import csv
import logging
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.files import sync

log = logging.getLogger(__name__)


@final
class CsvLogger(Logger):
    """One wide file with a column for each logged name, in alphabetical order; each row is written at once.

    A new name rewrites the file next to the old one and then replaces it. A resumed run keeps the rows that its
    checkpoint covers; any other run starts a new file. Rows that cannot be written wait until they can.

    Args:
        folder: of the run.

    Attributes:
        rows: how many are in the file, without its header.
    """

    name = version = ""

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.file = Path(folder) / "metrics.csv"
        self.rows = 0
        self._columns: list[str] | None = None
        self._waiting: list[dict[str, str]] = []
        self._warned = False

    @property
    def save_dir(self) -> str:
        return str(self.file.parent)

    @rank_zero_only
    def keep(self, rows: int) -> None:
        """Drop all but the first rows; the run writes the others again."""
        kept = read_rows(self.file)[:rows]
        self._columns, self.rows = sorted({name for row in kept for name in row}), len(kept)
        if kept:
            self._rewrite(kept, self._columns)
        else:
            self.file.unlink(missing_ok=True)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if self._columns is None:
            self.keep(0)
        texts = {name: f"{value:.0f}" if name == "epoch" else str(value) for name, value in metrics.items()}
        self._waiting.append(texts | {"step": str(step)})
        with self._warning():
            self._write_waiting()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml has them."""

    @rank_zero_only
    def sync(self) -> None:
        """Wait until all rows are on the disk, not only in the system's cache."""
        if self.rows:
            with self._warning():
                sync(self.file)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Warn once of a file that cannot be written, or that is gone, instead of ending the training."""
        try:
            yield
        except OSError as error:
            if not self._warned:
                log.warning(f"{self.file} cannot be written ({error.strerror}); its rows wait, and training continues")
            self._warned = True

    def _write_waiting(self) -> None:
        assert self._columns is not None
        names = {name for row in self._waiting for name in row}
        if names <= set(self._columns):
            before = self.file.stat().st_size
            try:
                with self.file.open("a", encoding="utf-8", newline="") as file:
                    csv.DictWriter(file, self._columns).writerows(self._waiting)
            except OSError:
                os.truncate(self.file, before)
                raise
        else:
            columns = sorted({*self._columns, *names})
            self._rewrite([*read_rows(self.file), *self._waiting], columns)
            self._columns = columns
        self.rows += len(self._waiting)
        self._waiting = []

    def _rewrite(self, rows: list[dict[str, str]], columns: list[str]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_name(f"{self.file.name}.part")
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        sync(part)
        part.replace(self.file)


def read_rows(file: Path) -> list[dict[str, str]]:
    """Return the values of each complete row by name; a killed process may have left half a row at the end."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(line for line in lines if line.endswith("\n"))
        return [{name: value for name, value in row.items() if value} for row in rows]
