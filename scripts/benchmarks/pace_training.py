"""What each program of `training.py` calls after every update: it counts, answers and waits for its turn.

It runs in the environment of any peer, and imports nothing but Python before it must. The benchmark hands over two
pipes: through the first comes how many updates to do next, and what they took goes back through the second.
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

PIPES = "PACE_TRAINING"  # the variable that names both pipes


@final
class Pace:
    """The program's side. The first update is answered by itself, so that its time is known.

    Args:
        orders, answers: as the benchmark opened them.
    """

    def __init__(self, orders: TextIO, answers: TextIO) -> None:
        self.orders, self.answers = orders, answers
        self.left = 1
        self._begin()

    @classmethod
    def of_benchmark(cls) -> Pace:
        """By the pipes that the benchmark handed over."""
        orders, answers = (int(number) for number in os.environ[PIPES].split(","))
        return cls(open(orders), open(answers, "w"))

    def updated(self, tokens: int, padded: int) -> None:
        """After an update; at the end of a turn it returns when the next turn begins.

        Args:
            tokens: real tokens of source and target, end tokens included. padded: with the padding.
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
            os._exit(0)  # all is measured; a training would go on to validate and save
        self.left = int(order)
        self._begin()

    def _begin(self) -> None:
        self.tokens = self.padded = 0
        self.seconds, self.cpu_seconds = time.perf_counter(), time.process_time()


def paced_by_optimizer(pace: Pace, owner: type, name: str, counted: Callable[..., tuple[int, int]]) -> Any:
    """Count the batch of every call of a peer's method, and pace the step of the optimizer that follows.

    Args:
        counted: takes what the method takes, and gives its tokens and those with the padding.

    Returns:
        What takes the pace away from the optimizers.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    method, counts = getattr(owner, name), []

    def counting(*arguments: Any, **named: Any) -> Any:
        counts.append(counted(*arguments, **named))
        return method(*arguments, **named)

    setattr(owner, name, counting)
    return register_optimizer_step_post_hook(lambda *_: pace.updated(*counts.pop()))


def peak_memory_bytes() -> int:
    """Of this process; the resource module would count what its parent held when it was started."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@final
class Program:
    """The benchmark's side: a training in a process of its own that does as many updates as it is asked for.

    Args:
        log: where its output goes.

    Attributes:
        start_seconds: from the command to the end of the first update.

    Raises:
        RuntimeError: when it ends before the first update.
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
        """What so many updates took."""
        print(updates, file=self.orders, flush=True)
        return self._answer() | {"updates": updates}

    def end(self) -> None:
        """Tell it to leave, and wait until it has left."""
        self.orders.close()
        self.process.wait()
        self.answers.close()

    def _answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            self.end()
            said = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(map(str, self.command))} ended without an answer: {said}")
        return json.loads(line)
