"""How much of a training's time goes into its validations."""

from __future__ import annotations

import time
from typing import Any, final

import pytorch_lightning as pl


@final
class ValidationTime(pl.Callback):
    """Searches, figures, and the pictures of callbacks that stand before this one.

    Attributes:
        seconds: of all validations so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._mark = 0.0

    def state_dict(self) -> dict[str, Any]:
        """A run that goes on counts what it did before it was stopped."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds = state_dict["seconds"]

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._mark = time.perf_counter()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.seconds += time.perf_counter() - self._mark
