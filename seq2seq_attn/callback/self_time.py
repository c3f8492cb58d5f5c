"""How long Lightning is in each of its actions, without those that are nested in it."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import final

import torch
from pytorch_lightning.profilers import Profiler


@final
class SelfTime(Profiler):
    """Every moment belongs to the innermost action, so that all seconds sum to the time that passed.

    Attributes:
        running: whether it counts.
        seconds: by action, while it was running.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running = False
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._actions = ["outside of Lightning's actions"]
        self._mark = 0.0

    def start(self, action_name: str) -> None:
        self._count()
        self._actions.append(action_name)

    def stop(self, action_name: str) -> None:
        self._count()
        if action_name in self._actions:  # or else it began before there was this profiler
            del self._actions[-1 - self._actions[::-1].index(action_name) :]

    def run(self, running: bool) -> None:
        """From now on count, or do not."""
        self._count()
        self.running = running
        if running:
            self._mark = self._now()

    def _count(self) -> None:
        if self.running:
            now = self._now()
            self.seconds[self._actions[-1]] += now - self._mark
            self._mark = now

    def _now(self) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # or work would be counted where it is waited for
        return time.perf_counter()
