"""What a training step reads: a batch twice for R-Drop, with tokens that scheduled sampling and dropout replace."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.training.translation_module import TranslationModule

PAD, UNK, BOS, EOS = range(4)
MODEL = object()


def batch_of(sentences: int = 50) -> Batch:
    pairs = [[5 + i % 7] * (2 + i % 3) for i in range(sentences)]
    return collate_pairs(pairs, pairs, list(range(sentences)), pad_id=PAD, bos_id=BOS, eos_id=EOS)


def read(batch: Batch, *, source: float = 0.0, target: float = 0.0, **options: Any) -> Batch:
    """What a module with these options reads in update 7."""
    module = SimpleNamespace(
        r_drop_alpha=0.0,
        scheduled_sampling=None,
        token_dropout={"source": source, "target": target},
        tokenizer=SimpleNamespace(unk_id=UNK, bos_id=BOS, eos_id=EOS),
        model=MODEL,
        global_step=7,
    )
    vars(module).update(options)
    return TranslationModule.training_batch(module, batch)


def test_without_an_option_it_is_the_batch() -> None:
    batch = batch_of()
    found = read(batch)
    for name in ("source", "target_input", "target_output", "index"):
        assert torch.equal(getattr(found, name), getattr(batch, name))


def test_r_drop_reads_all_sentences_and_then_all_again() -> None:
    batch = batch_of()
    found = read(batch, r_drop_alpha=5.0)
    assert found.index.tolist() == 2 * batch.index.tolist()
    assert torch.equal(found.source, batch.source.repeat(2, 1))


def test_token_dropout_is_of_each_side_and_differs_between_the_two_readings() -> None:
    batch = batch_of()
    found = read(batch, source=0.5)
    assert torch.equal(found.target_input, batch.target_input)
    assert 0.3 < (found.source == UNK).sum() / (batch.source > EOS).sum() < 0.7
    found = read(batch, target=0.5)
    assert torch.equal(found.source, batch.source)
    assert 0.3 < (found.target_input == UNK).sum() / (batch.target_input > EOS).sum() < 0.7
    first, second = read(batch, source=0.5, r_drop_alpha=1.0).source.chunk(2)
    assert not torch.equal(first, second)


def test_scheduled_sampling_replaces_tokens_of_the_update_before_some_are_dropped() -> None:
    calls: list[tuple[int, Any, int]] = []

    class Sampling:
        def replace_tokens(self, batch: Batch, model: Any, step: int) -> Batch:
            calls.append((len(batch), model, step))
            return replace(batch, target_input=torch.where(batch.target_input > EOS, 20, batch.target_input))

    batch = batch_of()
    found = read(batch, scheduled_sampling=Sampling(), r_drop_alpha=1.0, target=0.5)
    assert calls == [(2 * len(batch), MODEL, 7)]
    assert set(found.target_input.unique().tolist()) == {PAD, UNK, BOS, 20}
