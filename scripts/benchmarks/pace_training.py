"""Pacing of the programs of `training.py`: after every update they count it, and at the end of a turn report and wait.

It runs in the environment of any peer, so it imports only the standard library at first. The benchmark passes two
pipes: it sends the number of updates to do next through the first, and receives their figures from the second.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, final

PIPES = "PACE_TRAINING"  # environment variable with the numbers of both pipes


@final
class Pace:
    """The program's side. The first update is a turn of its own, so that its time is known.

    Args:
        orders, answers: the pipes that the benchmark opened.
    """

    def __init__(self, orders: TextIO, answers: TextIO) -> None:
        self.orders, self.answers = orders, answers
        self.left = 1
        self._begin()

    @classmethod
    def of_benchmark(cls) -> Pace:
        """Open the pipes that the benchmark passed."""
        orders, answers = (int(number) for number in os.environ[PIPES].split(","))
        return cls(open(orders), open(answers, "w"))

    def updated(self, tokens: int, padded: int) -> None:
        """Count an update; at the end of a turn, report it and wait for the next one.

        Args:
            tokens: real tokens of source and target, end tokens included.
            padded: tokens including padding.
        """
        self.tokens, self.padded, self.left = self.tokens + tokens, self.padded + padded, self.left - 1
        if self.left > 0:
            return
        figures = {
            "seconds": time.perf_counter() - self.seconds,
            "cpu_seconds": time.process_time() - self.cpu_seconds,
            "tokens": self.tokens,
            "padded_tokens": self.padded,
            "time": time.time(),
            "peak_memory_bytes": peak_memory_bytes(),
        }
        print(json.dumps(figures), file=self.answers, flush=True)
        order = self.orders.readline()
        if not order:
            os._exit(0)  # everything is measured; a normal exit would validate and save
        self.left = int(order)
        self._begin()

    def _begin(self) -> None:
        self.tokens = self.padded = 0
        self.seconds, self.cpu_seconds = time.perf_counter(), time.process_time()


def paced_by_optimizer(pace: Pace, owner: type, name: str, counted: Callable[..., tuple[int, int]]) -> Any:
    """Wrap a peer's method to count the batch of every call, and pace the optimizer step that follows.

    Args:
        counted: function from the arguments of the method to the numbers of tokens without and with padding.

    Returns:
        A handle that removes the hook of the optimizers.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    method, counts = getattr(owner, name), []

    def counting(*arguments: Any, **named: Any) -> Any:
        counts.append(counted(*arguments, **named))
        return method(*arguments, **named)

    setattr(owner, name, counting)
    return register_optimizer_step_post_hook(lambda *_: pace.updated(*counts.pop()))


def peak_memory_bytes() -> int:
    """Return the peak memory of this process; the resource module would include its parent's at the start."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@final
class Program:
    """The benchmark's side: a training process that makes updates on request.

    Args:
        log: file for its output.

    Attributes:
        start_seconds: seconds from the command to the end of the first update.

    Raises:
        RuntimeError: if the process ends before the first update.
    """

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.command, self.log = command, log
        (orders, self_orders), (self_answers, answers) = os.pipe(), os.pipe()
        self.orders, self.answers = os.fdopen(self_orders, "w"), os.fdopen(self_answers)
        pipes = {PIPES: f"{orders},{answers}"}
        began = time.time()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | environment | pipes,
                pass_fds=(orders, answers),
            )
        os.close(orders)
        os.close(answers)
        self.start_seconds = self._answer()["time"] - began

    def turn(self, updates: int) -> dict[str, Any]:
        """Request this many updates and return their figures."""
        print(updates, file=self.orders, flush=True)
        return self._answer() | {"updates": updates}

    def end(self) -> None:
        """End the process and wait for it."""
        self.orders.close()
        self.process.wait()
        self.answers.close()

    def _answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            self.end()
            output = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(map(str, self.command))} ended without an answer: {output}")
        return json.loads(line)
