"""Keep the checkpoints of the best validations, `best-step=N.ckpt`, to be averaged: JoeyNMT's `keep_best_ckpts`."""

from __future__ import annotations

from typing import final

from pytorch_lightning.callbacks import ModelCheckpoint


@final
class BestCheckpoints(ModelCheckpoint):
    """Lightning's ModelCheckpoint as a class of its own.

    Lightning finds the state of a callback in a checkpoint by its class and the figure that it monitors, and refuses
    two that have both in common. The callback of `best.ckpt` monitors the same figure.
    """
