"""The loss of an update: a mean over the target tokens of all its batches, on every process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.distributed.collectives import num_ranks, sum_over_ranks


@final
class UpdateMean:
    """Sums over the batches of an update so far; with `trainer.accumulate_grad_batches` it has several.

    How many tokens an update has is known at its last batch, so the gradient kept from batch to batch is that of the
    mean so far: the earlier gradient is scaled to its share when a batch is added. A mean of the batches' means would
    give the tokens of a short batch more weight; sums, divided at the end, might leave the range of float16.

    Attributes:
        smoothed: sum of the loss, of all processes.
        tokens: how many target tokens it is the sum over.
        alignment: sum of the loss of links, of all processes.
    """

    smoothed: Float[Tensor, ""] | float
    tokens: Float[Tensor, ""] | int
    alignment: Float[Tensor, ""] | float

    def __init__(self) -> None:
        self.smoothed, self.tokens, self.alignment = 0.0, 0, 0.0

    def add(
        self,
        smoothed: Float[Tensor, ""],
        tokens: int,
        parameters: Iterable[nn.Parameter],
        *,
        begin: bool,
        alignment: Float[Tensor, ""] | None = None,
    ) -> None:
        """Add a batch before its backward pass; the gradients so far are scaled to their share of the new mean.

        Args:
            smoothed, tokens: sum of this process's losses, and over how many tokens.
            alignment: sum of this process's losses of links; None: there are none, on any process.
            begin: with this batch an update begins, whose gradients are yet to be zeroed.
        """
        before = 0 if begin else self.tokens
        sums = (smoothed.detach(), tokens) if num_ranks() == 1 else self._over_ranks(smoothed, tokens)
        self.smoothed = sums[0] if begin else self.smoothed + sums[0]
        self.tokens = before + sums[1]
        if alignment is not None:
            summed = sum_over_ranks(alignment.detach())
            self.alignment = summed if begin else self.alignment + summed
        if not begin:
            scale_gradients(parameters, before / self.tokens)

    def mean(self) -> Float[Tensor, ""]:
        """Return the nats per token of the batches of this update so far."""
        assert isinstance(self.smoothed, Tensor)
        return self.smoothed / self.tokens

    def alignment_mean(self) -> Float[Tensor, ""]:
        """Return the loss of links per target token of the batches of this update so far."""
        assert isinstance(self.alignment, Tensor)
        return self.alignment / self.tokens

    def divisor(self, accumulated: int) -> Float[Tensor, ""] | float:
        """Return what a batch's sum is divided by: DDP takes the mean over processes, and Lightning over batches."""
        return self.tokens / (num_ranks() * accumulated)

    def _over_ranks(self, smoothed: Float[Tensor, ""], tokens: int) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        both = smoothed.new_full((2,), tokens)
        both[0] = smoothed.detach()
        summed, counted = sum_over_ranks(both).unbind()
        return summed, counted


def scale_gradients(parameters: Iterable[nn.Parameter], factor: Float[Tensor, ""] | float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
