"""Norm of the gradient before it is clipped."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer


@final
class GradientNorm(pl.Callback):
    """Logs `train/gradient_norm` of each update that is logged; the other updates cost nothing.

    It precedes `skip_nonfinite`, which removes gradients that are not finite.
    """

    def on_before_optimizer_step(self, trainer: Any, pl_module: pl.LightningModule, optimizer: Optimizer) -> None:
        if (trainer.global_step + 1) % trainer.log_every_n_steps:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            norm = norm / scaler.get_scale()  # a fused optimizer takes the scale from the gradients in its step
        pl_module.log("train/gradient_norm", norm, batch_size=1)
