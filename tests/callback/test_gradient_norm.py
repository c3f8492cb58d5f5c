"""The logged norm is the gradient's before it is clipped, on one process and on several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seq2seq_attn.callback.gradient_norm import GradientNorm

pytestmark = pytest.mark.usefixtures("quiet")


class Slope(pl.LightningModule):
    """Its gradient is (3, 4) at the first update, and twice, three times and so on as much at the next ones."""

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        self.fused = fused
        self.weight = nn.Parameter(torch.zeros(2))
        self.unused = nn.Parameter(torch.zeros(5))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.weight @ torch.tensor([3.0, 4.0]) * (batch_idx + 1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, fused=self.fused)


class Kept(pl.loggers.Logger):
    """What was logged, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, float] = {}

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "train/gradient_norm" in metrics and step is not None:
            self.rows[step] = metrics["train/gradient_norm"]

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


def norms(folder: Path, model: Slope, **options: Any) -> dict[int, float]:
    kept = Kept()
    trainer = pl.Trainer(
        max_epochs=1,
        log_every_n_steps=3,
        logger=kept,
        callbacks=[GradientNorm()],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(model, DataLoader(torch.zeros(7, 1)))
    return kept.rows


def test_the_norm_of_each_logged_update_is_that_before_clipping(tmp_path: Path) -> None:
    expected = {2: pytest.approx(3 * 5), 5: pytest.approx(6 * 5)}
    assert norms(tmp_path, Slope(), gradient_clip_val=1.0) == expected


@pytest.mark.parametrize("fused", [False, True])
def test_the_norm_in_half_precision_is_that_of_the_gradient_without_its_scale(tmp_path: Path, fused: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    found = norms(tmp_path, Slope(fused), plugins=[plugin])
    assert found == {2: pytest.approx(3 * 5), 5: pytest.approx(6 * 5)}
