"""Skip a step whose loss or gradient is not finite; end a run after many, or when its weights are not finite."""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, final

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.distributed.collectives import gather_from_ranks
from seq2seq_attn.errors import UserError

READ_EVERY = 16  # steps between two readings of the flags, each of which waits for the device
COLUMNS = ("step", "rank", "loss", "source", "target")

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """What is kept of a step until its flag is read.

    Attributes:
        skipped: 1.0 or 0.0, on the device.
        losses, rows: of each accumulated batch; rows are those of the training split.
    """

    number: int
    skipped: Tensor
    losses: list[Tensor]
    rows: list[Tensor]


@final
class SkipNonfinite(pl.Callback):
    """Skips a step exactly: weights, optimizer and buffers stay; the step count and the schedule advance.

    All ranks skip alike: a loss that is not finite makes its gradient NaN, and ranks share gradients. A fused optimizer
    skips on the device without waiting for it; gradients of any other optimizer are removed.

    Args:
        limit: skipped steps in a row that end the run.
        file: gets the sentences of those steps.
    """

    def __init__(self, *, limit: Annotated[int, "[1, 1000000]"], file: str) -> None:
        self.limit, self.file = limit, Path(file)
        self.skipped_in_a_row = 0
        self._skipped: list[Step] = []
        self._unread: list[Step] = []
        self._losses: list[Tensor] = []
        self._rows: list[Tensor] = []
        self._buffers: list[tuple[Tensor, Tensor]] = []  # and a copy of each as it was before the step

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        saved = pl_module.state_dict()
        check_constants(saved)
        self._buffers = [(buffer, buffer.clone()) for name, buffer in pl_module.named_buffers() if name in saved]

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self._rows.append(batch.index)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        value = loss.detach()
        self._losses.append(value)
        loss.register_hook(lambda gradient: torch.where(value.isfinite(), gradient, torch.nan))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        skipped = (~get_total_norm(gradients).isfinite()).float()
        if not skip_on_device(optimizer, skipped) and skipped.item():
            for parameter in parameters:
                parameter.grad = None
        restore_where(skipped, self._buffers)
        self._unread.append(Step(trainer.global_step, skipped, self._losses, self._rows))
        self._losses, self._rows = [], []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if len(self._unread) >= min(READ_EVERY, self.limit):
            self._read()
        self._end_beyond_limit(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._read()
        self._end_beyond_limit(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        check_weights(trainer, pl_module.state_dict())  # no search works with such weights

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        check_weights(trainer, checkpoint["state_dict"])

    def state_dict(self) -> dict[str, Any]:
        self._read()
        return {"skipped_in_a_row": self.skipped_in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["skipped_in_a_row"]
        self.skipped_in_a_row = saved if saved < self.limit else 0  # they have ended the run, which counts anew

    def _read(self) -> None:
        """Count the skipped steps, and report each."""
        flags = torch.stack([step.skipped for step in self._unread]).tolist() if self._unread else []
        for step, skipped in zip(self._unread, flags, strict=True):
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
            self._skipped = [*self._skipped, step] if skipped else []
            if skipped:
                log.warning(f"step {step.number} is skipped: its loss or gradient is not finite")
        self._unread = []

    def _end_beyond_limit(self, trainer: Any) -> None:
        if self.skipped_in_a_row < self.limit:
            return
        rows = table(self._skipped, trainer.global_rank, trainer.datamodule.corpus.splits["train"])
        lines = ["\t".join(row) + "\n" for row in [COLUMNS, *chain.from_iterable(gather_from_ranks(rows))]]
        if trainer.is_global_zero:
            self.file.write_bytes("".join(lines).encode())
        raise UserError(
            f"{self.skipped_in_a_row} steps in a row, up to step {self._skipped[-1].number}, were skipped, because "
            f"their loss or gradient is not finite; their sentences are in {self.file}; use a lower optimizer.lr, or "
            "remove unusual ones among them"
        )


def skip_on_device(optimizer: Optimizer, skipped: Float[Tensor, ""]) -> bool:
    """Let the optimizer decide on the device whether it skips; False: it cannot.

    A fused optimizer of torch 2.11 to 2.13 reads `found_inf`, as torch's GradScaler sets it, and tells so by a private
    attribute.
    """
    if not getattr(optimizer, "_step_supports_amp_scaling", False) or lacks_momentum(optimizer):
        return False
    optimizer.found_inf = skipped  # type: ignore[attr-defined]
    return True


def lacks_momentum(optimizer: Optimizer) -> bool:
    """Return whether torch's fused SGD would leave uninitialized memory as momentum if it skipped this step."""
    if not isinstance(optimizer, torch.optim.SGD):
        return False
    return any(
        parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None
        for group in optimizer.param_groups
        if group["momentum"]
        for parameter in group["params"]
    )


def restore_where(skipped: Float[Tensor, ""], buffers: list[tuple[Tensor, Tensor]]) -> None:
    """Give buffers their values before the step if it is skipped, else copy the new values; decided on the device."""
    for buffer, before in buffers:
        buffer.copy_(torch.where(skipped.bool(), before, buffer))
        before.copy_(buffer)


def check_constants(weights: dict[str, Tensor]) -> None:
    """Refuse what is infinite before the first step, as a buffer of masks may be: no check of weights could save it."""
    for name in not_finite(weights):
        raise UserError(
            f"{name.removeprefix('model.')} holds NaN or infinity before the first step; register a buffer of "
            "constants, such as a mask, with persistent=False, or start from finite weights"
        )


def check_weights(trainer: Any, weights: dict[str, Tensor]) -> None:
    """Raise a UserError on every rank if one has weights that are not finite."""
    broken = not_finite(weights)
    if trainer.strategy.reduce_boolean_decision(bool(broken), all=False):
        raise UserError(
            f"the weights are not finite after step {trainer.global_step} ({', '.join(broken[:1])}) and are not saved; "
            "use a lower optimizer.lr"
        )


def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that have a NaN or an infinite number; this waits for the device once."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    if not floating:
        return []
    finite = torch.stack([tensor.isfinite().all() for tensor in floating.values()]).tolist()
    return [name for name, good in zip(floating, finite, strict=True) if not good]


def table(steps: list[Step], rank: int, split: Split) -> list[tuple[str, ...]]:
    """Return one row for each sentence; the loss is that of its batch: finite, nan or inf."""
    rows: list[tuple[str, ...]] = []
    for step in steps:
        for loss, batch in zip(step.losses, step.rows, strict=True):
            value = "finite" if loss.isfinite() else str(loss.item())
            rows += [(str(step.number), str(rank), value, split.sources[i], split.targets[i]) for i in batch.tolist()]
    return rows
