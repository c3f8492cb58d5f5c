"""How far a command is, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from seq2seq_attn.text import plain_console


@contextmanager
def line_count(total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function to be told how many more lines are done.

    Args:
        total: lines, where they are known.
    """
    if not shown:
        yield lambda more: None
        return
    columns = [BarColumn(), TextColumn("{task.description}")] if total else [TextColumn("{task.description}")]
    # Rich lets what others print to standard error stand above.
    with Progress(*columns, console=plain_console(stderr=True)) as progress:
        task, started, done = progress.add_task("0 lines", total=total), time.perf_counter(), 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            description = describe(done, total, time.perf_counter() - started)
            progress.update(task, completed=done, description=description)

        yield advance


def describe(done: int, total: int | None, seconds: float) -> str:
    of = f" of {total:,}" if total else ""
    return f"{done:,}{of} lines, {done / max(seconds, 1e-9):,.1f} lines/s"
