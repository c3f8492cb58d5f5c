"""Tokens per second: real source and target tokens, without padding and without validation time, which is apart."""

from __future__ import annotations

import time
from typing import Any, final

import pytorch_lightning as pl
import torch
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.callback.autosave import is_between_updates
from seq2seq_attn.distributed.collectives import sum_over_ranks
from seq2seq_attn.process import peak_resident_bytes


@final
class Throughput(pl.Callback):
    """Logs `train/tokens_per_second` and `train/padding_share` over the last logging interval.

    A resumed run counts all of its training, without the time between, and its peak memory is that of all its parts.

    Attributes:
        tokens, padded_tokens: of all training steps so far, on all processes.
        seconds: of those steps, data loading included.
        validation_seconds: of all validations: searches, metrics, and the pictures of callbacks that precede this one.
    """

    def __init__(self) -> None:
        self.tokens = self.padded_tokens = 0
        self.seconds = self.validation_seconds = 0.0
        self._logged = (0, 0, 0.0)
        self._start = 0.0
        self._uncounted: Tensor | None = None  # on the device, and of this process alone
        self._device = torch.device("cpu")
        self._peaks: dict[str, int] = {}  # bytes of memory in earlier parts of the run, by the type of their device
        self._begun: Tensor | None = None  # of an update that is not made yet, whose batches a resumed run reads again

    def state_dict(self) -> dict[str, Any]:
        self._count()
        total = (self.tokens, self.padded_tokens, self.seconds)
        peaks = self._peaks | {self._device.type: self.peak_memory_bytes(self._device)}
        return {
            "total": total, "logged": self._logged, "validation_seconds": self.validation_seconds, "peaks": peaks,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens, self.padded_tokens, self.seconds = state_dict["total"]
        self._logged = state_dict["logged"]
        self.validation_seconds = state_dict["validation_seconds"]
        self._peaks = state_dict.get("peaks", {})

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._device = trainer.strategy.root_device

    def peak_memory_bytes(self, device: torch.device) -> int:
        """Return the peak of this run on a type of device: of the GPU, else resident memory."""
        ours = int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else peak_resident_bytes()
        return max(ours, self._peaks.get(device.type, 0))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._start = time.perf_counter()  # a run that resumes within an epoch has no start of that epoch

    on_train_epoch_start = on_validation_start = on_train_start

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        now = time.perf_counter()
        if not trainer.sanity_checking:
            self.validation_seconds += now - self._start
        self._start = now

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        real, computed = batch.target_lengths.sum(), batch.target_output.numel()
        if pl_module.model.reads_source:  # otherwise every source is an end token alone
            real, computed = real + batch.source_lengths.sum(), computed + batch.source.numel()
        counts = torch.stack([real, real.new_full((), computed)])
        self._begun = counts if self._begun is None else self._begun + counts
        is_whole = is_between_updates(trainer)
        if is_whole:
            self._uncounted = self._begun if self._uncounted is None else self._uncounted + self._begun
            self._begun = None
        logs = is_whole and trainer.global_step % trainer.log_every_n_steps == 0
        if logs:
            self._count()  # waits for the device, so its time belongs to these steps
        now = time.perf_counter()
        self.seconds += now - self._start
        self._start = now
        if logs:
            total = (self.tokens, self.padded_tokens, self.seconds)
            tokens, padded, seconds = (now - before for now, before in zip(total, self._logged, strict=True))
            self._logged = total
            pl_module.log("train/tokens_per_second", tokens / max(seconds, 1e-9), batch_size=1)
            pl_module.log("train/padding_share", 1 - tokens / max(padded, 1), batch_size=1)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._count()

    def _count(self) -> None:
        """Sum over all processes, each of which calls it at the same steps."""
        if self._uncounted is not None:
            tokens, padded = sum_over_ranks(self._uncounted).tolist()
            self.tokens, self.padded_tokens = self.tokens + tokens, self.padded_tokens + padded
            self._uncounted = None
