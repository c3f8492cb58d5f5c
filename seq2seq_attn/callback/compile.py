"""torch.compile of the model's forward pass. Ansel et al. 2024, doi:10.1145/3620665.3640366."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.errors import UserError


@final
class Compile(pl.Callback):
    """Compiles in place, so that checkpoints, averages of weights and the search know nothing of it.

    Args:
        dynamic: one program for batches of every length; False: one for each, up to torch's limit of them.
        backend: of torch.compile.
    """

    def __init__(self, *, dynamic: bool, backend: str) -> None:
        self.dynamic, self.backend = dynamic, backend

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Raises:
        UserError: where nothing can be compiled, before any work is done.
        """
        if stage != "fit":
            return
        device = trainer.strategy.root_device
        torch.compiler.set_stance("default")  # an earlier run of this process may have died in its validation
        try:
            torch.compile(double, backend=self.backend)(torch.ones(2, device=device))
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise UserError(
                f"callback=compile: torch.compile does not work here for {device.type} ({said}); it needs a C++ "
                "compiler, or Triton on a GPU; leave it out"
            ) from error
        pl_module.model.compile(dynamic=self.dynamic, backend=self.backend)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Without gradients and dropout it would be another program, for little work."""
        torch.compiler.set_stance("force_eager")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        torch.compiler.set_stance("default")

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        torch.compiler.set_stance("force_eager")

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        torch.compiler.set_stance("default")


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x
