"""Report a training loss far above its usual range: the step, the loss and the running mean before it."""

from __future__ import annotations

import logging
import math
from typing import Any, final

import pytorch_lightning as pl
import torch
from torch import Tensor

from seq2seq_attn.errors import UserError

READ_EVERY = 16  # steps between two readings, each of which waits for the device

log = logging.getLogger(__name__)


@final
class LossSpike(pl.Callback):
    """A spike is a loss both `deviations` standard deviations above the running mean and `ratio` times the mean.

    Batches of short and of long sentences differ by more than chance, so deviations alone would report too many. A
    spike moves the mean by no more than the bound that it exceeds.

    Args:
        window_steps: of the running mean and deviation; the first of them are not judged.
    """

    def __init__(self, *, deviations: int | float, ratio: int | float, window_steps: int) -> None:
        if not (deviations > 0 and ratio >= 1 and window_steps >= 2):
            raise UserError(
                f"callback.loss_spike.deviations={deviations} ratio={ratio} window_steps={window_steps} finds "
                "a spike everywhere or nowhere; use 6, 1.5 and 100"
            )
        self.deviations, self.ratio, self.window_steps = deviations, ratio, window_steps
        self.losses = 0
        self.mean = self.variance = 0.0
        self.inside = False
        self._unread: list[tuple[int, Tensor]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._unread.append((trainer.global_step, pl_module.update_mean.mean()))
        if len(self._unread) >= READ_EVERY:
            self._read()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._read()

    def state_dict(self) -> dict[str, Any]:
        self._read()
        return {name: getattr(self, name) for name in ("losses", "mean", "variance", "inside")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    def is_spike(self, loss: float) -> bool:
        """Judge a loss by those before it, and include it in the running mean."""
        bound = max(self.mean + self.deviations * math.sqrt(self.variance), self.ratio * self.mean)
        spike = self.losses >= self.window_steps and loss > bound
        self.losses += 1
        share = 1 / min(self.losses, self.window_steps)
        away = (bound if spike else loss) - self.mean
        self.mean += share * away
        self.variance = (1 - share) * (self.variance + share * away**2)
        return spike

    def _read(self) -> None:
        losses = torch.stack([loss for _, loss in self._unread]).tolist() if self._unread else []
        for (step, _), loss in zip(self._unread, losses, strict=True):
            if not math.isfinite(loss):
                continue  # callback.skip_nonfinite reports it
            mean = self.mean
            spike = self.is_spike(loss)
            if spike and not self.inside:
                log.warning(f"step {step}: the loss jumped to {loss:.3f}, from a running mean of {mean:.3f}")
            self.inside = spike
        self._unread = []
