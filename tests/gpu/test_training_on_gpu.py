"""Training on a GPU: every precision and strategy, resuming, compiling, and the commands that read the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import options
from small_run import KilledError, assert_same_run, begun, run_here, said, start

from seq2seq_attn.inference.translator import Translator

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet")]
TRANSFORMER = (
    "model=transformer", "attention=multihead", "model.encoder.num_layers=1", "model.decoder.num_layers=1",
    "feed_forward.ff_dim=16", "model.dropout=0.1",
)  # fmt: skip
SOURCES = ["the cat sees a red house", "where is my old book", "we like water"]


def provenance(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("model", ["rnn", "conv", "transformer"])
def test_every_model_trains_in_every_precision(model: str, precision: str, tmp_path: Path, pairs: list[str]) -> None:
    attention = "luong_dot" if model == "conv" else "multihead"
    sizes = ["model.embedding_dim=16", "model.encoder.dim=16", "model.decoder.dim=16", "optimizer.lr=0.01"]
    given = [f"model={model}", f"attention={attention}", *sizes, "trainer=gpu", f"trainer.precision={precision}"]
    found = run_here(
        tmp_path / "run",
        *pairs,
        *given,
        "trainer.max_epochs=8",
        *(["optimizer.fused=false"] if precision == "16-mixed" else []),
    )
    assert provenance(tmp_path / "run")["device"] == torch.cuda.get_device_name()
    assert found["peak_memory_bytes"] < torch.cuda.get_device_properties(0).total_memory
    lines = (tmp_path / "run" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("val/loss")
    losses = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
    assert losses[-1] < losses[0]
    texts = [Translator.load(tmp_path / "run", device=device).translate(SOURCES) for device in ("cpu", "cuda")]
    assert [len(one) for one in texts] == [len(SOURCES)] * 2


@pytest.mark.parametrize("attention", options("attention"))
def test_every_attention_trains_in_half_precision(attention: str, tmp_path: Path, pairs: list[str]) -> None:
    sizes = ["model.embedding_dim=16", "model.encoder.dim=16", "model.decoder.dim=16", "trainer.max_epochs=1"]
    found = run_here(
        tmp_path / "run", *pairs, f"attention={attention}", *sizes, "trainer=gpu", "trainer.precision=bf16-mixed"
    )
    assert 0 < found["test/loss"] < 10


@pytest.mark.parametrize("given", [(), TRANSFORMER], ids=["rnn", "transformer"])
def test_a_resumed_run_equals_one_that_was_never_stopped(
    given: tuple[str, ...], tmp_path: Path, pairs: list[str]
) -> None:
    """Sums of some kernels have no fixed order on a GPU, so it takes `trainer.deterministic=true`."""
    common = [*pairs, *given, "trainer=gpu", "trainer.deterministic=true"]
    run_here(tmp_path / "whole", *common)
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:7}"
    with pytest.raises(KilledError):
        run_here(tmp_path / "cut", *common, killer)
    run_here(tmp_path / "cut", *common, "resume=auto")
    assert begun[-1] == 7
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_ddp_trains_on_one_gpu_as_one_process_does(tmp_path: Path, pairs: list[str]) -> None:
    options = [*pairs, *TRANSFORMER, "model.dropout=0.0", "model.encoder.dropout=0.0", "model.decoder.dropout=0.0"]
    run_here(tmp_path / "one", *options, "trainer=gpu")
    process = start(tmp_path / "ddp", *options, "trainer=ddp", "trainer.devices=1")
    assert process.wait() == 0, said(tmp_path / "ddp")
    ours, theirs = (
        json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8")) for name in ("ddp", "one")
    )
    assert ours["test/loss"] == pytest.approx(theirs["test/loss"], rel=1e-3)
    assert len(Translator.load(tmp_path / "ddp", device="cuda").translate(SOURCES)) == len(SOURCES)


@pytest.mark.parametrize("attention", ["multihead", "sparse", "synthesizer_dense"])
def test_a_compiled_run_learns_the_same(attention: str, tmp_path: Path, pairs: list[str]) -> None:
    compiling = "+callback.compile={_target_:seq2seq_attn.callback.compile.Compile,dynamic:true,backend:inductor}"
    options = [*pairs, *TRANSFORMER, f"attention={attention}", "model.dropout=0.0", "model.encoder.dropout=0.0"]
    options += ["model.decoder.dropout=0.0", "attention.dropout=0.0", "trainer=gpu", "trainer.max_epochs=1"]
    process = start(tmp_path / "compiled", *options, compiling)
    run_here(tmp_path / "plain", *options)
    assert process.wait() == 0, said(tmp_path / "compiled")
    ours, theirs = (
        json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8")) for name in ("compiled", "plain")
    )
    assert ours["test/loss"] == pytest.approx(theirs["test/loss"], rel=1e-2)
