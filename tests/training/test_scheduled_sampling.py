"""Which tokens the decoder reads with scheduled sampling, in both modes and in every decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import built, composed, model_of, options
from pytorch_lightning.plugins.precision import HalfPrecision
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.training import scheduled_sampling
from seq2seq_attn.training.scheduled_sampling import ScheduledSampling

MODES = ["parallel", "stepwise"]
PAD, BOS, EOS = 0, 2, 3


def batch_of(sentences: int = 3) -> Batch:
    pairs = [([4 + i % 9, 5, 6], [7, 8, 9 + i % 5, 10, 11][: 3 + i % 3]) for i in range(sentences)]
    return collate_pairs(
        [s for s, _ in pairs], [t for _, t in pairs], list(range(sentences)), pad_id=PAD, bos_id=BOS, eos_id=EOS
    )


def sampling(**options: Any) -> ScheduledSampling:
    return ScheduledSampling(**{"share": 1.0, "steps": 0, "mode": "stepwise"} | options)


def best(model: Any, batch: Batch, read: Tensor) -> Tensor:
    """Return the most probable token after each of those that are read."""
    return model.logits(model(batch.source, batch.source_mask, read).hidden).argmax(-1)


def model(decoder: str = "rnn") -> Any:
    cross = ["attention@cross_attention=bahdanau"] if decoder == "transformer" else []
    return model_of(f"decoder@model.decoder={decoder}", "attention=luong_general", *cross).eval()


@pytest.mark.parametrize("decoder", options("decoder"))
@pytest.mark.parametrize("mode", MODES)
def test_a_share_of_one_reads_the_prediction_of_what_was_read_before(mode: str, decoder: str) -> None:
    ours, batch = model(decoder), batch_of()
    found = sampling(mode=mode).replace_tokens(batch, ours, step=0).target_input
    before = found if mode == "stepwise" else batch.target_input
    expected = torch.cat([batch.target_input[:, :1], best(ours, batch, before)[:, :-1]], 1)
    assert torch.equal(found, torch.where(batch.target_mask, expected, batch.target_input))
    assert not torch.equal(found, batch.target_input)


@pytest.mark.parametrize("mode", MODES)
def test_a_share_of_the_tokens_is_replaced_and_the_same_for_the_same_seed(mode: str) -> None:
    ours, batch = model(), batch_of(999)
    ours.output.bias.data[12] = 1e6  # which is predicted everywhere, and no target has it
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(sampling(mode=mode, share=0.3).replace_tokens(batch, ours, step=0))
    assert torch.equal(found[0].target_input, found[1].target_input)
    may_change = batch.target_mask & (batch.target_input != BOS)
    replaced = found[0].target_input != batch.target_input
    assert not (replaced & ~may_change).any()
    assert replaced.sum() / may_change.sum() == pytest.approx(0.3, abs=0.03)
    assert found[0].target_output is batch.target_output


def test_a_small_share_is_that_share_in_half_precision_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_sampling, "one_pass", lambda batch, model, drawn: batch.target_input * ~drawn)
    ours = model()
    torch.manual_seed(0)
    with HalfPrecision("bf16-true").train_step_context():
        found = sampling(mode="parallel", share=0.001).replace_tokens(batch_of(30_000), ours, step=0)
    assert 80 <= (found.target_input[:, 1:][found.target_mask[:, 1:]] == 0).sum() <= 160  # of 120,000


def test_teacher_forcing_draws_nothing_and_changes_nothing() -> None:
    batch, ours, before = batch_of(), model().train(), torch.get_rng_state()
    assert sampling(share=0.0).replace_tokens(batch, ours, step=9) is batch
    assert sampling(steps=4).replace_tokens(batch, ours, step=0) is batch
    assert torch.equal(before, torch.get_rng_state())


def test_the_share_rises_along_a_line_and_then_stays() -> None:
    rising = sampling(share=0.8, steps=4)
    assert [rising.share_at(step) for step in (0, 1, 2, 4, 5)] == pytest.approx([0, 0.2, 0.4, 0.8, 0.8])
    assert sampling(share=0.8).share_at(0) == 0.8


def test_the_default_is_teacher_forcing() -> None:
    assert built(composed().scheduled_sampling).share == 0
