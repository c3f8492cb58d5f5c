"""torch.compile of the model's forward pass. Ansel et al. 2024, doi:10.1145/3620665.3640366."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.errors import UserError


@final
class Compile(pl.Callback):
    """Compiles in place, so checkpoints, averages of weights and the search are as without it.

    Validation and test run uncompiled: without gradients and dropout they would need another program, for little work.

    Args:
        dynamic: one program for batches of every length; False: one for each length, up to torch's limit. A recurrent
            decoder has one for each length of the targets either way.
        backend: of torch.compile.
    """

    def __init__(self, *, dynamic: bool, backend: str) -> None:
        self.dynamic, self.backend = dynamic, backend

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Compile the model, after a first program of one line has shown that compiling works here.

        Raises:
            UserError: if it does not work.
        """
        if stage != "fit":
            return
        device = trainer.strategy.root_device
        torch.compiler.reset()  # or programs of earlier runs of this process count towards torch's limit
        torch.compiler.set_stance("default")  # an earlier run of this process may have failed in its validation
        try:
            torch.compile(double, backend=self.backend)(torch.ones(2, device=device))
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"torch.compile does not work here for {device.type} ({reason}); it needs a C++ compiler, or Triton on "
                "a GPU; leave the compile callback out"
            ) from error
        pl_module.model.compile(dynamic=self.dynamic, backend=self.backend)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        torch.compiler.set_stance("force_eager")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        torch.compiler.set_stance("default")

    on_test_start, on_test_end = on_validation_start, on_validation_end


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x
