"""Compiled training: the same losses, one program for all lengths, and checkpoints that know nothing of it."""

from __future__ import annotations

import copy
import csv
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from configs import model_of
from small_run import run_here, said, start, weights
from torch import nn
from torch._dynamo.utils import counters

from seq2seq_attn.callback.compile import Compile
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("quiet")
TRANSFORMER = (
    "model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=1", "feed_forward.ff_dim=13",
    "model.dropout=0.0", "model.encoder.dropout=0.0", "model.decoder.dropout=0.0", "batch_tokens=200",
    "trainer.max_steps=3",
)  # fmt: skip


def losses(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row.get("train/loss")]


@pytest.mark.slow  # what is compiled, by which program, and the names of its weights: the fast tests below
@pytest.mark.parametrize("attention", ["multihead", "sparse"])
def test_a_compiled_run_learns_the_same(attention: str, tmp_path: Path, pairs: list[str]) -> None:
    compiling = "+callback.compile={_target_:seq2seq_attn.callback.compile.Compile,dynamic:true,backend:aot_eager}"
    options = [*pairs, *TRANSFORMER, f"attention={attention}", "attention.dropout=0.0"]
    # in a process of its own, because the type checks of tests cannot be compiled
    process = start(tmp_path / "compiled", *options, compiling)
    run_here(tmp_path / "plain", *options)
    assert process.wait() == 0, said(tmp_path / "compiled")
    plain, compiled = (losses(tmp_path / name) for name in ("plain", "compiled"))
    assert len(plain) == 3
    assert compiled == pytest.approx(plain, rel=1e-4)
    assert weights(tmp_path / "plain", "best.ckpt").keys() == weights(tmp_path / "compiled", "best.ckpt").keys()


def test_what_cannot_compile_is_said_before_training() -> None:
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with pytest.raises(
        UserError, match=r"^torch\.compile does not work here for cpu \(.+leave the compile callback out$"
    ):
        Compile(dynamic=True, backend="none-such").setup(trainer, None, "fit")


class Doubled(nn.Module):  # torch compiles no module of its own that is not within another
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def test_a_run_after_one_that_died_in_its_validation_is_compiled() -> None:
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    module = pl.LightningModule()
    module.model = Doubled()
    torch.compiler.set_stance("force_eager")  # which that validation has left behind
    try:
        Compile(dynamic=True, backend="eager").setup(trainer, module, "fit")
        counters.clear()
        for length in (3, 5, 7):
            x = torch.randn(2, length)
            assert torch.equal(module.model(x), 2 * x)
        assert counters["stats"]["unique_graphs"] == 1
        assert list(module.state_dict()) == ["model.factor"]
    finally:
        torch.compiler.set_stance("default")


def test_validations_and_tests_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    stances: list[str] = []
    monkeypatch.setattr(torch.compiler, "set_stance", stances.append)
    callback, trainer = Compile(dynamic=True, backend="eager"), pl.Trainer(accelerator="cpu", logger=False)
    for begin, end in (("validation_start", "validation_end"), ("test_start", "test_end")):
        getattr(callback, f"on_{begin}")(trainer, None)
        getattr(callback, f"on_{end}")(trainer, None)
    assert stances == ["force_eager", "default"] * 2


@pytest.mark.slow
def test_runs_before_it_leave_a_run_its_programs() -> None:
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        module = pl.LightningModule()
        module.model = Doubled()
        counters.clear()
        Compile(dynamic=True, backend="eager").setup(trainer, module, "fit")
        x = torch.randn(2, 3)
        assert torch.equal(module.model(x), 2 * x)
        assert counters["stats"]["unique_graphs"] == 2  # the trial's and the model's


def test_a_compiled_recurrent_encoder_reads_batches_of_any_length() -> None:
    model = model_of("model.dropout=0.0", "model.encoder.dropout=0.0", "model.decoder.dropout=0.0")
    compiled = copy.deepcopy(model)
    torch.compiler.set_stance("default")
    compiled.encoder.compile(dynamic=True, backend="eager")
    for lengths in ([4, 2], [3, 5, 1]):
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        source = torch.full(mask.shape, 5)
        outputs = [one.encoder(one.embed_source(source), mask).keys for one in (model, compiled)]
        torch.testing.assert_close(outputs[0], outputs[1])
