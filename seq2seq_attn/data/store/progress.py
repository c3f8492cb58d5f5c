"""A progress bar of long work, with its speed and the time left, and a line in the log at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seq2seq_attn.text import plain_console

log = logging.getLogger(__name__)


@contextmanager
def progress(name: str, total: int, unit: str = "bytes", *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much of `total` is done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=True)
    start = time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=plain_console(), transient=True, disable=not shown) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)
    if shown:
        seconds = time.monotonic() - start
        log.info(f"{name}: {total:,} {unit} in {seconds:,.0f} s ({total / seconds:,.0f} a second)")
