"""Average of the weights over the last updates. Polyak and Juditsky 1992; Shamir and Zhang 2013, arXiv:1212.1824."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.precision import at_least_float32

RISE = 8  # eta of Shamir and Zhang's polynomial-decay averaging


@final
class EMA(pl.Callback):
    """average = keep * average + (1 - keep) * weights behind update n, with keep = min(decay, (n - 1) / (n + 8)).

    So the first update is copied, and the weights before training count nothing: the average of weights that stand
    still is these weights. It reaches back over a ninth of the run, and in the end over 1 / (1 - decay) updates.

    Validation, all that is drawn in it, and every checkpoint's `state_dict` are of the averaged weights; best.ckpt is
    chosen by them, tested and translated with. Training goes on from the raw ones, which a checkpoint has beside
    them: a run is bit for bit the same with and without an average, and resumed as if it had never been stopped.

    Lightning's `EMAWeightAveraging` lets the first weights count for decay^n, averages buffers too (counts and the
    baseline of hard attention), and when a validation is interrupted saves raw weights as averaged ones, and the
    averaged as raw.

    Args:
        decay: share of the average that an update keeps, once it is reached.

    Attributes:
        updates: how many the average is of.

    Raises:
        UserError: for a decay that is no share, or keeps all.
    """

    def __init__(self, *, decay: float) -> None:
        if not 0 <= decay < 1:
            raise UserError(f"callback.ema.decay={decay} is not from 0 to below 1; take one that is, such as 0.999")
        self.decay, self.updates = decay, 0
        self._step = 0
        self._weights: dict[str, nn.Parameter] = {}
        self._average: dict[str, Tensor] = {}
        self._raw: dict[str, Tensor] | None = None  # while the model has the averaged weights

    def setup(self, trainer: Any, pl_module: pl.LightningModule, stage: str) -> None:
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            raise UserError(
                "callback=ema averages whole weights, of which each device has a part here; use trainer=ddp, or leave "
                "it out"
            )
        if stage == "fit":
            self._weights = {n: p for n, p in pl_module.named_parameters() if p.requires_grad}
            self.updates, self._average, self._raw = 0, {}, None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._step = trainer.global_step
        self._average = {name: x.to(self._weights[name].device) for name, x in self._average.items()}

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._show_raw()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._update()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """They stay until training goes on, so that what others do at a validation's end is of them too."""
        self._show_average()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._show_average()

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint's `state_dict` has the average too, the same tensors, which a file holds once."""
        if self.updates == 0:
            return {}
        raw = {name: weight.detach() for name, weight in self._weights.items()}
        return {"updates": self.updates, "average": dict(self._average), "raw": self._raw or raw}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """After the model was loaded, with averaged weights."""
        self.updates = state_dict["updates"]
        self._average = dict(state_dict["average"])
        set_weights(self._weights, state_dict["raw"])

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.updates == 0:
            return
        averages = {id(weight): self._average[name].to(weight.dtype) for name, weight in self._weights.items()}
        # tied ones under each of their names
        for name, parameter in pl_module.named_parameters(remove_duplicate=False):
            if id(parameter) in averages:
                checkpoint["state_dict"][name] = averages[id(parameter)]

    @torch.no_grad()
    def _update(self) -> None:
        self.updates += 1
        weights = [at_least_float32(weight.detach()) for weight in self._weights.values()]
        if self.updates == 1:
            self._average = dict(zip(self._weights, (weight.clone() for weight in weights), strict=True))
            return
        keep = min(self.decay, (self.updates - 1) / (self.updates + RISE))
        torch._foreach_lerp_(list(self._average.values()), weights, 1 - keep)

    def _show_average(self) -> None:
        if self._raw is None and self.updates > 0:
            self._raw = {name: weight.detach().clone() for name, weight in self._weights.items()}
            set_weights(self._weights, self._average)

    def _show_raw(self) -> None:
        if self._raw is not None:
            set_weights(self._weights, self._raw)
            self._raw = None


@torch.no_grad()
def set_weights(weights: dict[str, nn.Parameter], values: dict[str, Tensor]) -> None:
    for name, weight in weights.items():
        weight.copy_(values[name])
