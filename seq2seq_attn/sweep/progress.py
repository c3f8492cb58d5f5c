"""One line for each job of a sweep that ends, with the time left, and a table at its end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

from seq2seq_attn.sweep.job import COMPLETE, FAILED, Job

POLL_SECONDS = 0.5
ENDED = (COMPLETE, FAILED)
NUMBERS = ("job", "test BLEU", "minutes")  # columns


@final
class Progress:
    """Looks at the jobs' folders, so it tells of those that run in other processes or on other machines too.

    Args:
        total: jobs that the sweep will have.
        told: false in all ranks but the first.
    """

    def __init__(self, total: int, folder: Path, *, told: bool) -> None:
        self.total, self.folder, self.told = total, folder, told
        self.jobs: list[Job] = []
        self._ended = self._skipped = 0
        self._began = time.monotonic()

    def add(self, jobs: Sequence[Job]) -> None:
        self.jobs += jobs

    def skip(self, job: Job) -> None:
        self._ended, self._skipped = self._ended + 1, self._skipped + 1
        self._say(f"job {job.number}: {job.status}, skipped")

    @contextmanager
    def watching(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Tells of each job soon after it ends."""
        running, ended = list(jobs), threading.Event()

        def look() -> None:
            for job in list(running):
                if job.status in ENDED:
                    running.remove(job)
                    self._end(job)

        def watch() -> None:
            while not ended.wait(POLL_SECONDS):
                look()

        watcher = threading.Thread(target=watch, daemon=True, name="watch of jobs")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            look()

    def print_table(self) -> None:
        if not self.told:
            return
        from rich.table import Table

        from seq2seq_attn.text import plain_console

        table = Table(title=f"Sweep: {self.folder}", title_justify="left")
        for name in ("job", "overrides", "status", "test BLEU", "minutes", "folder"):
            table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")
        for job in self.jobs:
            bleu, minutes = job.results.get("test/bleu"), job.record.get("minutes")
            table.add_row(
                str(job.number),
                self.name_of(job),
                job.status,
                "" if bleu is None else f"{bleu:.1f}",
                "" if minutes is None else f"{minutes:.1f}",
                job.folder.relative_to(self.folder).as_posix(),
            )
        plain_console().print(table)

    def name_of(self, job: Job) -> str:
        """What tells it from the others; all of its overrides, if it is alone."""
        all_overrides = [set(other.overrides) for other in self.jobs]
        common = set.intersection(*all_overrides) if len(self.jobs) > 1 else set()
        return " ".join(override for override in job.overrides if override not in common)

    def _end(self, job: Job) -> None:
        self._ended += 1
        record, bleu = job.record, job.results.get("test/bleu")
        if record["status"] == FAILED:
            said = f"failed: {record['why']}"
        else:
            said = f"{'' if bleu is None else f'BLEU {bleu:.1f}, '}{record['minutes']:.1f} min"
        position = f"({self._ended} of {self.total})"
        self._say(f"job {job.number} {position} {self.name_of(job)}: {said}{self._left()}")

    def _left(self) -> str:
        """By the time that jobs have taken so far, several at once counted as they were."""
        left, done = self.total - self._ended, self._ended - self._skipped
        if not left or not done:
            return ""
        minutes = (time.monotonic() - self._began) / 60 / done * left
        return f"; about {math.ceil(minutes)} min left"

    def _say(self, sentence: str) -> None:
        if self.told:
            print(sentence, flush=True)
