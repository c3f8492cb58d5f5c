"""The draws of a training step are a function of seed, epoch, batch and rank, and of nothing else."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import pytorch_lightning as pl
import torch

from seq2seq_attn.callback.seeding import Seeding


def drawn(seed: int, epoch: int, batch: int, rank: int) -> float:
    torch.rand(3)
    trainer: Any = Mock(spec=pl.Trainer, current_epoch=epoch, global_rank=rank)
    Seeding(seed=seed).on_train_batch_start(trainer, None, None, batch)
    return torch.rand(()).item()


def test_each_of_them_changes_the_draws() -> None:
    places = list(product((1, 2), repeat=4))
    found = [drawn(*place) for place in places]
    assert len(set(found)) == 16
    assert [drawn(*place) for place in places] == found
