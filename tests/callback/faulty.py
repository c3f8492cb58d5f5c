"""Callbacks that spoil a run, and that look at it, for those who test what stands guard."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

SEEN: list[dict[str, Any]] = []  # of the run of this process: what each step began with


class Faulty(pl.Callback):
    """From the batch `first` on, `number` of them have a fault.

    Args:
        fault: `forward`: NaN in the encoder's input; `gradient`: NaN in its gradient alone; `loss`: infinity is added
            to the loss, which its gradient does not show.
        rank: the only one with the fault; None: all.
    """

    def __init__(self, *, fault: str, first: int, number: int, rank: int | None = None) -> None:
        self.fault, self.batches, self.rank = fault, range(first, first + number), rank
        self.now = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        step = pl_module.training_step
        pl_module.training_step = lambda *batch: step(*batch) + (torch.inf if self._is("loss") else 0.0)
        pl_module.model.embed_source.register_forward_hook(lambda module, given, output: self._spoil(output))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        number = trainer.fit_loop.epoch_loop.total_batch_idx
        self.now = number in self.batches and self.rank in (None, trainer.global_rank)

    def _is(self, fault: str) -> bool:
        return self.now and self.fault == fault

    def _spoil(self, output: Tensor) -> Tensor:
        if self._is("gradient") and output.requires_grad:
            output.register_hook(lambda gradient: gradient * torch.nan)
        return output * torch.nan if self._is("forward") else output


class Onlooker(pl.Callback):
    """Writes down what each batch finds: weights and buffers, the optimizer's state, the rate."""

    def __init__(self) -> None:
        SEEN.clear()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._look(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._look(trainer, pl_module)

    def _look(self, trainer: Any, pl_module: Any) -> None:
        (optimizer,) = trainer.optimizers
        parts = {"weights": pl_module.state_dict(), "moments": optimizer.state_dict()["state"]}
        SEEN.append(deepcopy(parts) | {"rate": optimizer.param_groups[0]["lr"], "step": trainer.global_step})


class Ruin(pl.Callback):
    """Makes one weight infinite once so many steps are done."""

    def __init__(self, *, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            pl_module.model.output.bias.data[3] = -torch.inf
