"""Average of the weights over the last updates. Polyak and Juditsky 1992; Shamir and Zhang 2013, arXiv:1212.1824."""

from __future__ import annotations

from typing import Annotated, Any, final

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from seq2seq_attn.nn.precision import at_least_float32

RISE = 8  # eta of Shamir and Zhang's polynomial-decay averaging


@final
class EMA(pl.Callback):
    """average = keep * average + (1 - keep) * weights after update n, with keep = min(decay, (n - 1) / (n + 8)).

    The first update is copied, so the weights before training have no share. The average is over a ninth of the run,
    and at last over 1 / (1 - decay) updates.

    Validation, its pictures and the `state_dict` of every checkpoint have the averaged weights. Training continues from
    the raw weights, which a checkpoint has beside them, so a run is bit-identical with and without an average, and
    resumes exactly.

    Lightning's `EMAWeightAveraging` gives the first weights a share of decay^n, averages buffers too (counts, and the
    baseline of hard attention), and confuses raw and averaged weights when it saves within a validation.

    Args:
        decay: share of the average that an update keeps, once it is reached.

    Attributes:
        updates: how many the average is of.
    """

    def __init__(self, *, decay: Annotated[float, "[0, 1)"]) -> None:
        self.decay, self.updates = decay, 0
        self._step = 0
        self._weights: dict[str, nn.Parameter] = {}
        self._average: dict[str, Tensor] = {}
        self._raw: dict[str, Tensor] | None = None  # while the model has the averaged weights

    def setup(self, trainer: Any, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            self._weights = {n: p for n, p in pl_module.named_parameters() if p.requires_grad}
            self.updates, self._average, self._raw = 0, {}, None

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._step = trainer.global_step
        self._average = {name: x.to(self._weights[name].device) for name, x in self._average.items()}

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._raw is not None:
            set_weights(self._weights, self._raw)
            self._raw = None

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._update()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Show the average until training continues, to callbacks at the end of the validation too."""
        if self._raw is None and self.updates > 0:
            self._raw = {name: weight.detach().clone() for name, weight in self._weights.items()}
            set_weights(self._weights, self._average)

    on_train_end = on_validation_start

    def state_dict(self) -> dict[str, Any]:
        """Share the average's tensors with the checkpoint's `state_dict`, so that a file has them once."""
        if self.updates == 0:
            return {}
        raw = {name: weight.detach() for name, weight in self._weights.items()}
        return {"updates": self.updates, "average": dict(self._average), "raw": self._raw or raw}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the raw weights after the model was loaded with the averaged ones."""
        self.updates = state_dict["updates"]
        self._average = dict(state_dict["average"])
        set_weights(self._weights, state_dict["raw"])

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.updates == 0:
            return
        averages = {id(weight): self._average[name].to(weight.dtype) for name, weight in self._weights.items()}
        for name, parameter in pl_module.named_parameters(remove_duplicate=False):  # tied ones under each name
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
        get_ema_multi_avg_fn(keep)(list(self._average.values()), weights, self.updates)


@torch.no_grad()
def set_weights(weights: dict[str, nn.Parameter], values: dict[str, Tensor]) -> None:
    for name, weight in weights.items():
        weight.copy_(values[name])
