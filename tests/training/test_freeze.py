"""Modules that are not trained: named as in the model's table, without gradient, optimizer state or change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from configs import model_of
from small_run import run_here

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.freeze import freeze
from seq2seq_attn.training.provenance import frozen_by_part, model_counts


@pytest.mark.usefixtures("quiet")
def test_frozen_modules_keep_their_weights_and_get_no_state_of_the_optimizer(
    pairs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [
        "model=rnn",
        "attention=bahdanau",
        "trainer.max_steps=3",
        "trainer.limit_val_batches=1",
        "trainer.limit_test_batches=1",
    ]
    frozen = ["freeze=[encoder,embed_target,decoder.attention]"]
    run_here(tmp_path / "none", *pairs, *short, *frozen, "optimizer.lr=0.0", "callback=[seeding]")
    assert "frozen" in capsys.readouterr().out
    averaged = ["callback=[seeding,checkpoint,autosave,skip_nonfinite,ema]", "trainer.accumulate_grad_batches=2"]
    run_here(tmp_path / "some", *pairs, *short, *frozen, *averaged)
    last = read_checkpoint(tmp_path / "some" / "checkpoints" / "last.ckpt")
    before = read_checkpoint(tmp_path / "none" / "checkpoints" / "last.ckpt")["state_dict"]
    kept = ("model.encoder.", "model.embed_target.", "model.output.weight", "model.decoder.attention.")
    names = [name for name in before if name.startswith("model.")]
    changed = {name for name in names if not torch.equal(before[name], last["state_dict"][name])}
    assert changed == {name for name in names if not name.startswith(kept)}
    assert len(last["optimizer_states"][0]["state"]) == len(changed)


def test_a_matrix_of_two_names_is_frozen_under_both_and_said(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("model.tie_embeddings=target")
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        freeze(model, ["output"])
    assert caplog.messages == ["embed_target.weight is frozen too, since it is one matrix with a frozen parameter"]
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert "embed_source.weight" in trained
    assert not {"embed_target.weight", "output.bias"} & trained


def test_the_table_counts_what_is_frozen() -> None:
    model = model_of()
    assert frozen_by_part(model) == {}
    freeze(model, ["embed_source", "decoder.attention"])
    counts, attention = model_counts(model), sum(p.numel() for p in model.decoder.attention.parameters())
    both = f"{17 * 11 + attention:,}"
    assert frozen_by_part(model) == {
        "embed_source": counts["embed_source"], "decoder": f"{attention:,}", "of which attention": f"{attention:,}",
        "all": both,
    }  # fmt: skip
    whole = sum(p.numel() * (4 if p.requires_grad else 1) for p in model.parameters())
    assert counts["MiB of weights, gradients, Adam"] == f"{4 * whole / 2**20:,.1f}"


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["encodr"], r"^freeze=\[encodr\] names no module or parameter of this model; did you mean encoder"),
        (["encod"], r"did you mean encoder"),
        (["decoder.atention"], r"did you mean decoder.attention"),
        (["xyz"], r"choose from embed_source, embed_target, encoder, decoder, output, or what is in them$"),
        (["dropout"], r"^freeze=\[dropout\] names no module or parameter"),
        (
            ["embed_source", "embed_target", "encoder", "decoder", "output"],
            r"^freeze=\[embed_source,embed_target,encoder,decoder,output\] leaves nothing to train; leave out",
        ),
    ],
)
def test_a_name_that_is_none_and_a_model_that_is_all_frozen_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        freeze(model_of(), names)
