"""What training reads with token dropout, and what it never touches."""

from __future__ import annotations

import pytest
import torch
from pytorch_lightning.plugins.precision import HalfPrecision

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.training.token_dropout import drop_tokens

PAD, UNK, BOS, EOS = range(4)


def batch_of(sentences: int, source: int = 7, target: int = 11) -> Batch:
    """Every other sentence is a token shorter; token 5 on one side, 6 on the other."""
    pairs = [([5] * (source - i % 2), [6] * (target - i % 2)) for i in range(sentences)]
    return collate_pairs(
        [s for s, _ in pairs], [t for _, t in pairs], list(range(sentences)), pad_id=PAD, bos_id=BOS, eos_id=EOS
    )


def dropped(batch: Batch, source: float, target: float) -> Batch:
    return drop_tokens(batch, {"source": source, "target": target}, unk_id=UNK, kept=(BOS, EOS))


def test_each_side_loses_its_share_of_its_own_tokens() -> None:
    torch.manual_seed(0)
    batch = batch_of(2000)
    found = dropped(batch, 0.3, 0.1)
    for name, token, share in (("source", 5, 0.3), ("target_input", 6, 0.1)):
        before, after = getattr(batch, name), getattr(found, name)
        own = before == token
        assert ((after == UNK) & own).sum() / own.sum() == pytest.approx(share, abs=0.01)
        assert torch.equal(after[~own], before[~own])  # begin, end and padding
        assert set(after[own].tolist()) == {token, UNK}


def test_a_small_share_is_that_share_in_half_precision_too() -> None:
    torch.manual_seed(0)
    batch = batch_of(20_000)
    with HalfPrecision("bf16-true").train_step_context():
        found = dropped(batch, 0.001, 0.0)
    assert 90 <= (found.source == UNK).sum() <= 170  # of 130,000


def test_what_is_to_be_said_and_all_lengths_stay() -> None:
    batch = batch_of(13)
    found = dropped(batch, 0.9, 0.9)
    for name in ("target_output", "source_lengths", "target_lengths", "source_mask", "target_mask", "index"):
        assert getattr(found, name) is getattr(batch, name)


def test_nothing_dropped_is_nothing_drawn() -> None:
    batch, state = batch_of(3), torch.get_rng_state()
    assert torch.equal(dropped(batch, 0.0, 0.0).source, batch.source)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_same_state_of_the_generator_drops_the_same_and_positions_are_drawn_one_by_one() -> None:
    batch = batch_of(31)
    torch.manual_seed(7)
    first = dropped(batch, 0.5, 0.5)
    torch.manual_seed(7)
    second = dropped(batch, 0.5, 0.5)
    assert torch.equal(first.source, second.source)
    assert torch.equal(first.target_input, second.target_input)
    assert len({tuple(row) for row in (first.source == UNK).tolist()}) > 20
