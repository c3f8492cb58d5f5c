"""The batches that take most memory are tried before the first step, so that too little of it shows in seconds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.utilities.seed import isolate_rng

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.errors import UserError


@final
class MemoryProbe(pl.Callback):
    """Forward and backward of two batches, then forgotten: a run is bit for bit the same with and without.

    They are the one of most padded tokens and the one of most tokens times length, which attention's weights take.
    Tokens that are drawn anew may make a later batch longer. Memory that runs out, here or later, is said in one
    sentence with the override that mends it. A model in shards is not tried: its ranks could not stop alike.

    Args:
        on_cpu: try there too, where the system ends a process that takes too much, and nothing can be said.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        self.on_cpu = on_cpu

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        whole = isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy)
        if not whole or (pl_module.device.type == "cpu" and not self.on_cpu):
            return
        loader = trainer.train_dataloader
        before = [(buffer, buffer.clone()) for buffer in pl_module.buffers()]
        sentence = None
        with isolate_rng():
            for rows in largest(loader.batch_sampler):
                sentence = sentence or self._try(trainer, pl_module, loader.dataset, rows)
        for buffer, content in before:
            buffer.data.copy_(content)
        if pl_module.device.type == "cuda":
            torch.cuda.empty_cache()
        if trainer.strategy.reduce_boolean_decision(sentence is not None, all=False):
            raise UserError(sentence or "another device has too little memory for the longest batch")

    def on_exception(self, trainer: Any, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if is_out_of_memory(exception):
            half = max(1, trainer.datamodule.batch_tokens // 2)
            # The command says the UserError among the causes; raised here, it would keep Lightning from tidying up.
            exception.__cause__ = UserError(
                f"{pl_module.device} has too little memory for a batch; {way_out(trainer, half)}"
            )

    def _try(self, trainer: Any, pl_module: Any, dataset: Any, rows: list[int]) -> str | None:
        """What to say if the batch does not fit: with the size of the part that does, found by halving."""
        whole = batch = dataset.__getitems__(rows)
        while not fits(trainer, pl_module, batch):
            rows = rows[: len(rows) // 2]
            if not rows:
                break
            batch = dataset.__getitems__(rows)
        if batch is whole and rows:
            return None
        what = (
            f"{pl_module.device} has too little memory for a batch of {len(whole)} sentence pairs of "
            f"{whole.source.shape[1]} and {whole.target_input.shape[1]} tokens"
        )
        if not rows:
            way = "leave long sentences out by a smaller data.cleaning.max_words"
            return f"{what}, or for one of them; {way}"
        return f"{what}; {way_out(trainer, batch.source.numel() + batch.target_input.numel())}"


def way_out(trainer: Any, tokens: int) -> str:
    steps = -(-trainer.datamodule.batch_tokens // tokens) * trainer.accumulate_grad_batches
    return f"use batch_tokens={tokens}, with trainer.accumulate_grad_batches={steps} for updates of the same size"


def fits(trainer: Any, pl_module: Any, batch: Batch) -> bool:
    """Whether the device bears a step on it, with all that a later step would find in its memory."""
    copies = (0 if trainer.optimizers[0].state else 2) + (trainer.accumulate_grad_batches > 1)
    try:
        # Adam's two moments, and gradients that accumulate
        held = [torch.empty_like(p) for p in pl_module.parameters() for _ in range(copies)]
        with trainer.precision_plugin.train_step_context():
            loss, _ = pl_module.loss(pl_module.training_batch(batch.to(pl_module.device)))
        loss.smoothed.backward()
        del held
        return True
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        pl_module.zero_grad(set_to_none=True)


def is_out_of_memory(error: BaseException) -> bool:
    """Of a device; that of a CPU has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def largest(sampler: TokenBatchSampler) -> list[list[int]]:
    """Rows of the batch of most padded tokens and of that of most tokens times length, among those of all ranks."""
    every = copy.copy(sampler)
    every.rank, every.num_replicas = 0, 1
    every.start_at(every.epoch, 0)
    batches = list(every)
    source, target = (longest(lengths, batches) for lengths in (sampler.source_lengths, sampler.target_lengths))
    tokens = np.array([len(rows) for rows in batches]) * (source + target)
    positions = {int(tokens.argmax()), int((tokens * (source + target)).argmax())}
    return [batches[position] for position in sorted(positions)]


def longest(lengths: np.ndarray, batches: Sequence[list[int]]) -> np.ndarray:
    starts = np.cumsum([0, *(len(rows) for rows in batches[:-1])])
    return np.maximum.reduceat(lengths[np.concatenate(batches)], starts)
