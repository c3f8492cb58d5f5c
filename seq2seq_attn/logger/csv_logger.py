"""metrics.csv: a row for each time something is logged, on the disk before a checkpoint says so."""

from __future__ import annotations

import csv
import logging
import os
from argparse import Namespace
from pathlib import Path
from typing import Any, final

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

log = logging.getLogger(__name__)


@final
class CsvLogger(Logger):
    """One wide file, a column for each name that was logged, in the order of the alphabet; a row is written at once.

    A new name rewrites the file beside itself and renames it. A run that goes on keeps the rows that its
    checkpoint covers; any other starts the file anew. Rows that the disk does not take wait until it does.

    Args:
        folder: of the run.

    Attributes:
        rows: how many are in the file, its head not counted.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.file = Path(folder) / "metrics.csv"
        self.rows = 0
        self._columns: list[str] | None = None
        self._waiting: list[dict[str, str]] = []
        self._warned = False

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.file.parent)

    @property
    def log_dir(self) -> str:
        return self.save_dir

    @rank_zero_only
    def keep(self, rows: int) -> None:
        """Drop all rows after the first so many: the run is going to write them again."""
        kept = self._read()[:rows]
        self._columns, self.rows = sorted({name for row in kept for name in row}), len(kept)
        if kept:
            self._write(kept, self._columns)
        else:
            self.file.unlink(missing_ok=True)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if self._columns is None:
            self.keep(0)
        assert self._columns is not None
        self._waiting.append({name: str(value) for name, value in metrics.items()} | {"step": str(step)})
        try:
            self._write_waiting()
        except OSError as error:
            if not self._warned:
                log.warning(f"{self.file} cannot be written ({error.strerror}); its rows wait, and training goes on")
            self._warned = True

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """They are in config.yaml."""

    @rank_zero_only
    def sync(self) -> None:
        """All rows are on the disk, not only handed to the system."""
        if self.rows:
            sync_to_disk(self.file)

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
            self._write([*self._read(), *self._waiting], columns)
            self._columns = columns
        self.rows += len(self._waiting)
        self._waiting = []

    def _read(self) -> list[dict[str, str]]:
        """What the rows hold; a last one that was cut short by a kill is among them, shorter than the others."""
        if not self.file.exists():
            return []
        with self.file.open(encoding="utf-8", newline="") as file:
            return [{k: v for k, v in row.items() if k and v} for row in csv.DictReader(file)]

    def _write(self, rows: list[dict[str, str]], columns: list[str]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_name(f"{self.file.name}.part")
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        sync_to_disk(part)
        part.replace(self.file)


def sync_to_disk(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
