"""The averaged weights by their formula, and that training never sees them."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from small_run import KilledError, assert_same_run, begun, rows, run_here, stopped_and_resumed, weights
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seq2seq_attn.callback.ema import EMA
from seq2seq_attn.checkpoint.load import read_checkpoint

pytestmark = pytest.mark.usefixtures("quiet")
EVERY_TWO = "callback.autosave.every_steps=2"
AVERAGED = "+callback.ema={_target_:seq2seq_attn.callback.ema.EMA,decay:0.9}"


class Walk(pl.LightningModule):
    """Its weights are those it began with, and `step` more after every update; one of them has two names."""

    def __init__(self, *, step: float, begin: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.step = nn.Parameter(torch.full((3,), begin, dtype=dtype)), step
        self.tied = self.weight
        self.register_buffer("count", torch.tensor(7.0))
        self.seen: list[tuple[str, int, float]] = []

    def look(self, where: str) -> None:
        self.seen.append((where, self.trainer.global_step, float(self.weight.mean())))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.look("train")
        return -self.step * self.weight.sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.look("val")

    def on_validation_end(self) -> None:
        self.look("val end")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def walked(
    folder: Path,
    *,
    updates: int,
    decay: float = 0.999,
    step: float = 1.0,
    begin: float = 0.0,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> tuple[Walk, pl.Trainer]:
    """After so many updates, with a validation after every second batch."""
    module = Walk(step=step, begin=begin, dtype=dtype)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=updates,
        callbacks=[EMA(decay=decay)],
        logger=False,
        val_check_interval=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        num_sanity_val_steps=1,
        **options,
    )
    data = [DataLoader(torch.zeros(100, 1), batch_size=1), DataLoader(torch.zeros(2, 1), batch_size=1)]
    trainer.fit(module, *data)
    return module, trainer


def test_the_average_after_n_updates_weighs_them_as_the_paper_does(tmp_path: Path) -> None:
    module, _ = walked(tmp_path, updates=13, begin=1000.0)
    # of Shamir and Zhang with eta 8: update i has a share of C(i + 7, 8) / C(n + 8, 9); the first weights have none
    expected = sum(comb(i + 7, 8) * (1000 + i) for i in range(1, 14)) / comb(21, 9)
    assert module.weight.tolist() == pytest.approx([expected] * 3, abs=1e-9)


def test_with_its_decay_reached_the_average_is_exponential(tmp_path: Path) -> None:
    module, _ = walked(tmp_path, updates=40, decay=0.5)
    # 40 - (1/2 + 1/4 + ...): what came before update 10 has less than 2^-29
    assert module.weight[0].item() == pytest.approx(40 - 1.0, abs=1e-6)
    module, _ = walked(tmp_path, updates=5, decay=0.0)
    assert module.weight.tolist() == [5.0] * 3


@pytest.mark.parametrize("updates", [1, 2, 17])
def test_the_average_of_weights_that_stand_still_is_these_weights(tmp_path: Path, updates: int) -> None:
    module, _ = walked(tmp_path, updates=updates, step=0.0, begin=0.1, dtype=torch.float32)
    assert torch.equal(module.weight, torch.full((3,), 0.1))


def test_validation_sees_the_average_and_training_the_raw_weights(tmp_path: Path) -> None:
    module, _ = walked(tmp_path, updates=6)
    trained = [(step, weight) for where, step, weight in module.seen if where == "train"]
    assert trained == [(n, float(n)) for n in range(6)]
    averages = {2: (1 * 1 + 9 * 2) / 10, 4: (1 + 9 * 2 + 45 * 3 + 165 * 4) / 220}
    for where in ("val", "val end"):
        seen = {step: weight for position, step, weight in module.seen if position == where}
        assert seen[0] == 0.0  # Lightning's sanity check, before anything is averaged
        assert {step: seen[step] for step in averages} == pytest.approx(averages, abs=1e-12)


def test_accumulated_batches_are_one_update(tmp_path: Path) -> None:
    module, trainer = walked(tmp_path, updates=2, accumulate_grad_batches=2)
    assert trainer.global_step == 2
    assert module.weight[0].item() == pytest.approx((1 + 9 * 2) / 10)


def test_a_checkpoint_has_the_average_under_every_name_once_and_the_raw_weights_apart(tmp_path: Path) -> None:
    _, trainer = walked(tmp_path, updates=2)
    trainer.save_checkpoint(tmp_path / "any.ckpt")
    saved = torch.load(tmp_path / "any.ckpt", weights_only=True)
    found, state = saved["state_dict"], saved["callbacks"]["EMA"]
    assert found["weight"].tolist() == pytest.approx([1.9] * 3)
    assert found["weight"].data_ptr() == found["tied"].data_ptr() == state["average"]["weight"].data_ptr()
    assert found["count"] == 7
    assert state["raw"]["weight"].tolist() == [2.0] * 3


def test_16_bit_weights_are_averaged_in_32_bits(tmp_path: Path) -> None:
    module, trainer = walked(tmp_path, updates=300, decay=0.99, step=0.0, begin=1.0, dtype=torch.bfloat16)
    (ema,) = (callback for callback in trainer.callbacks if isinstance(callback, EMA))
    ema.on_train_batch_start(trainer, module, None, 0)
    with torch.no_grad():
        module.weight.fill_(2.0)
    for _ in range(2):
        ema._update()
    # keep is 300 / 308, then 301 / 309: bfloat16 would not move from 1.0 in so small steps, or by a lot
    assert ema._average["weight"][0].item() == pytest.approx(2 - 300 / 309 * 301 / 310, abs=1e-6)
    assert ema._average["weight"].dtype == torch.float32


@pytest.fixture(scope="module")
def averaged(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs with an average, never stopped."""
    folder = tmp_path_factory.mktemp("averaged")
    run_here(folder, *pairs, EVERY_TWO, AVERAGED, "trainer.max_epochs=2")
    return folder


@pytest.mark.slow
def test_training_is_bit_for_bit_what_it_is_without(averaged: Path, tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path, *pairs, EVERY_TWO, "trainer.max_epochs=2", "trainer.limit_test_batches=0")
    losses = [[row["train/loss"] for row in rows(folder) if row["train/loss"]] for folder in (averaged, tmp_path)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 14
    last = read_checkpoint(averaged / "checkpoints" / "last.ckpt")
    plain, raw = weights(tmp_path, "last.ckpt"), last["callbacks"]["EMA"]["raw"]
    assert raw
    assert all(torch.equal(raw[name], plain[name]) for name in raw)
    assert not any(torch.equal(last["state_dict"][name], plain[name]) for name in raw)


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_and_resumed_has_the_same_average(
    number: int, averaged: Path, tmp_path: Path, pairs: list[str]
) -> None:
    options = [*pairs, EVERY_TWO, AVERAGED, "trainer.max_epochs=2"]
    stops = [("backward", 4), ("validation", 7), ("test", 14)][:number]
    assert stopped_and_resumed(tmp_path, options, *stops) == [0, 4, 6, 14][: number + 1]
    assert_same_run(tmp_path, averaged)
    states = [read_checkpoint(run / "checkpoints" / "last.ckpt")["callbacks"]["EMA"] for run in (tmp_path, averaged)]
    assert states[0]["updates"] == states[1]["updates"] == 14
    for part in ("average", "raw"):
        assert all(torch.equal(states[0][part][name], tensor) for name, tensor in states[1][part].items())


@pytest.mark.slow
def test_a_run_that_is_resumed_without_the_average_goes_on_from_the_raw_weights(
    averaged: Path, tmp_path: Path, pairs: list[str]
) -> None:
    options = [*pairs, EVERY_TWO, "trainer.max_epochs=2"]
    with pytest.raises(KilledError):
        run_here(tmp_path, *options, AVERAGED, "+callback.killed={_target_:small_run.Killed,hook:backward,step:9}")
    run_here(tmp_path, "resume=auto", *options)
    assert begun[-1] == 8
    losses = [[row["train/loss"] for row in rows(folder) if row["train/loss"]] for folder in (averaged, tmp_path)]
    assert losses[0] == losses[1]


def test_saved_within_a_validation_the_raw_weights_are_still_the_raw_ones(tmp_path: Path) -> None:
    class Saves(pl.Callback):
        def on_validation_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
            if not trainer.sanity_checking:
                trainer.save_checkpoint(tmp_path / "within.ckpt")

    module, trainer = (
        Walk(step=1.0, begin=0.0, dtype=torch.float64),
        pl.Trainer(
            accelerator="cpu",
            max_steps=2,
            callbacks=[EMA(decay=0.9), Saves()],
            logger=False,
            val_check_interval=2,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        ),
    )
    trainer.fit(module, *[DataLoader(torch.zeros(n, 1), batch_size=1) for n in (2, 1)])
    saved = torch.load(tmp_path / "within.ckpt", weights_only=True)
    assert saved["callbacks"]["EMA"]["raw"]["weight"].tolist() == [2.0] * 3
    assert saved["state_dict"]["weight"].tolist() == pytest.approx([1.9] * 3)
