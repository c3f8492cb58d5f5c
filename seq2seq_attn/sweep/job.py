"""A job of a sweep, as job.json in its folder tells of it: written before it starts, as it begins and as it ends."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from seq2seq_attn.distributed.run_lock import is_locked
from seq2seq_attn.errors import UserError

RECORD, RESULTS = "job.json", "results.json"
WAITING, RUNNING, COMPLETE, FAILED = "waiting", "running", "complete", "failed"
OF_THE_START = re.compile(r"[+~]*(resume$|hydra[./])")  # keys that say how a job is started, not what it is


@final
@dataclass(frozen=True)
class Job:
    """Attributes:
    number: in the sweep, from 0.
    overrides: its own and those of the whole sweep.
    """

    number: int
    overrides: tuple[str, ...]
    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        return read_record(self.folder)

    @property
    def status(self) -> str:
        return str(self.record.get("status", WAITING))

    @property
    def is_complete(self) -> bool:
        return self.status == COMPLETE and (self.folder / RESULTS).exists()

    @property
    def results(self) -> dict[str, Any]:
        return read_json(self.folder / RESULTS)

    def check(self) -> None:
        """Refuse a folder that is another job's, or that another process is at work in.

        Raises:
            UserError: with both definitions.
        """
        there = self.record.get("overrides")
        if there is not None and definition(there) != definition(self.overrides):
            raise UserError(
                f"{self.folder} holds a job of another sweep ({differing(there, self.overrides)}, now "
                f"{differing(self.overrides, there)}); repeat the sweep that began there, or give another "
                "hydra.sweep.dir"
            )
        if is_locked(self.folder):
            raise UserError(
                f"another process (number {self.record.get('process')}) is at work in {self.folder}; wait for it, or "
                "end it"
            )

    def put_down(self) -> None:
        """It is to be started, whatever became of it before."""
        write_record(self.folder, overrides=list(self.overrides), status=WAITING)

    def write_off(self, why: str) -> None:
        """It cannot say any more how it ended."""
        write_record(self.folder, **self.record | {"status": FAILED, "why": why})


def definition(overrides: Sequence[str]) -> dict[str, str]:
    """What makes a job this job: the last value of each key, Hydra's own left out."""
    pairs = (override.partition("=") for override in overrides)
    return {key: value for key, _, value in pairs if not OF_THE_START.match(key)}


def differing(overrides: Sequence[str], others: Sequence[str]) -> str:
    """Those that the others have not."""
    ours, theirs = definition(overrides), definition(others)
    found = [f"{key}={ours[key]}" for key in ours if theirs.get(key) != ours[key]]
    return " ".join(found) or "no more overrides"


def read_record(folder: Path) -> dict[str, Any]:
    return read_json(folder / RECORD)


def write_record(folder: Path, **entries: Any) -> None:
    """All of it: nothing of an earlier record stays."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{RECORD}.{os.getpid()}"
    partial.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", "utf-8")
    os.replace(partial, folder / RECORD)


def read_json(file: Path) -> dict[str, Any]:
    """Empty if there is none, or one that was being written."""
    try:
        found: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return dict(found)
