"""A job of a sweep, with its record job.json: its overrides, its status, its minutes and why it failed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import yaml

from seq2seq_attn.distributed.run_lock import check_records, holds_run, is_locked
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import read_json
from seq2seq_attn.metric.names import score_of_test

RECORD, RESULTS, CONFIG = "job.json", "results.json", "config.yaml"
WAITING, RUNNING, COMPLETE, FAILED = "waiting", "running", "complete", "failed"
STOPPED = "stopped"  # not begun, since the sweep was told to end
HOW_STARTED = re.compile(r"[+~]*(resume$|hydra[./])")  # keys that do not change what a job computes


@final
@dataclass(frozen=True)
class Job:
    """Attributes:
    number: in the sweep, from 0; also the name of its folder.
    overrides: those of the job and those of the whole sweep.
    """

    number: int
    overrides: tuple[str, ...]
    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        return read_json(self.folder / RECORD)

    @property
    def status(self) -> str:
        return str(self.record.get("status", WAITING))

    @property
    def results(self) -> dict[str, Any]:
        return read_json(self.folder / RESULTS)

    @property
    def score(self) -> tuple[str, float] | None:
        """The title and value of the metric that the run monitors, else of another; None: it has none."""
        file = self.folder / CONFIG
        monitor = (yaml.safe_load(file.read_bytes()) or {}).get("monitor") if file.is_file() else None
        return score_of_test(self.results, monitor)

    @property
    def is_complete(self) -> bool:
        return self.status == COMPLETE and (self.folder / RESULTS).exists()

    def write(self, status: str, **entries: Any) -> None:
        """Replace the record, but for the minutes that the job has taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{RECORD}.{os.getpid()}"
        taken = {name: value for name, value in self.record.items() if name == "minutes"}
        record = {"overrides": self.overrides, "status": status, **taken, **entries}
        partial.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
        os.replace(partial, self.folder / RECORD)

    def check_folder(self) -> None:
        """Refuse a folder with a run, or with the user's own files, that no job of a sweep has written.

        Raises:
            UserError: naming it.
        """
        if self.record:
            return
        if holds_run(self.folder):
            raise UserError(
                f"{self.folder} holds a run without its {RECORD}, so it cannot be known whether it is this job; move "
                "the folder away, or give another hydra.sweep.dir"
            )
        check_records(self.folder, "hydra.sweep.dir")

    def check(self) -> None:
        """Refuse a folder that holds another job, or in which another process works.

        Raises:
            UserError: naming the overrides in which the two jobs differ.
        """
        self.check_folder()
        record = self.record
        there, ours = definition(record.get("overrides", self.overrides)), definition(self.overrides)
        if there != ours:
            then, now = (" ".join(sorted(a - b)) or "no more overrides" for a, b in ((there, ours), (ours, there)))
            raise UserError(
                f"{self.folder} holds a job of another sweep ({then}, now {now}); repeat the sweep that began there, "
                "or give another hydra.sweep.dir"
            )
        if is_locked(self.folder):
            raise UserError(
                f"another process (number {record.get('process')}) works in {self.folder}; wait for it, or end it"
            )


def holds_sweep(folder: Path) -> bool:
    """Return whether a job of a sweep has begun in a folder."""
    return any(folder.glob(f"*/{RECORD}"))


def definition(overrides: Sequence[str]) -> set[str]:
    """Return what a job computes: the last override of each key, without `resume` and Hydra's own."""
    last = {override.partition("=")[0]: override for override in overrides}
    return {override for key, override in last.items() if not HOW_STARTED.match(key)}
