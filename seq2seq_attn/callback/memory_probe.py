"""Try the batches that take most memory before the first step, so that a lack of it shows within seconds."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.seed import isolate_rng

from seq2seq_attn.batch import Batch
from seq2seq_attn.errors import UserError


@final
class MemoryProbe(pl.Callback):
    """Runs forward and backward of two batches and discards the result: the run is bit-identical with and without.

    They are the batch of most padded tokens and that of most tokens times length, which the attention weights take.
    Subword sampling may make a later batch longer. If memory runs out, here or later, one sentence names the override
    that helps.

    Args:
        on_cpu: try there too, where the system may end the process before anything can be reported.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        self.on_cpu = on_cpu

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if pl_module.device.type == "cpu" and not self.on_cpu:
            return
        loader = trainer.train_dataloader
        before = [(buffer, buffer.clone()) for buffer in pl_module.buffers()]
        with isolate_rng():
            for rows in loader.batch_sampler.largest():
                try_batch(trainer, pl_module, loader.dataset.__getitems__(rows))
        for buffer, content in before:
            buffer.data.copy_(content)
        if pl_module.device.type == "cuda":
            torch.cuda.empty_cache()

    def on_exception(self, trainer: Any, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if not is_out_of_memory(exception):
            return
        if trainer.evaluating:
            half = max(1, trainer.datamodule.eval_batch_tokens // 2)
            advice = f"a batch of a validation or test; use eval_batch_tokens={half}"
        else:
            half, steps = max(1, trainer.datamodule.batch_tokens // 2), 2 * trainer.accumulate_grad_batches
            advice = (
                f"a batch; use batch_tokens={half}, with trainer.accumulate_grad_batches={steps} for updates of the "
                "same size"
            )
        # The command prints a UserError among the causes; raising it here would keep Lightning from cleaning up.
        exception.__cause__ = UserError(f"{pl_module.device} has too little memory for {advice}")


def try_batch(trainer: Any, pl_module: Any, batch: Batch) -> None:
    """Run forward and backward with all in the device's memory that is there at a later step."""
    copies = (0 if trainer.optimizers[0].state else 2) + (trainer.accumulate_grad_batches > 1)
    # Adam's two moments, and accumulated gradients
    held = [torch.empty_like(p) for p in pl_module.parameters() if p.requires_grad for _ in range(copies)]
    with trainer.precision_plugin.train_step_context():
        loss, _ = pl_module.loss(pl_module.training_batch(batch.to(pl_module.device)))
    loss.smoothed.backward()
    del held
    pl_module.zero_grad(set_to_none=True)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device has no memory left; the error of a CPU has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
