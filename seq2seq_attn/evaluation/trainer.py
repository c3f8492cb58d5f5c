"""Lightning where nothing is trained: one device, no logger, and a progress bar where somebody looks."""

from __future__ import annotations

import sys
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import RichProgressBar


def build_trainer(device: torch.device, precision: Any) -> pl.Trainer:
    watched = sys.stdout.isatty()
    return pl.Trainer(
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=watched,
        callbacks=[RichProgressBar(leave=False)] if watched else [],
        use_distributed_sampler=False,
    )
