"""How much of a training's time its validations take."""

from __future__ import annotations

import time
from typing import Any, final

import pytorch_lightning as pl


@final
class ValidationTime(pl.Callback):
    """Times searches, metrics, and the pictures of callbacks that precede this one.

    Attributes:
        seconds: of all validations so far, those before a resumed run was stopped included.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds = state_dict["seconds"]

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._start = time.perf_counter()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.seconds += time.perf_counter() - self._start
