"""Sentences that are drawn: of middle length, else the longest of the short ones; none is said."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import pytorch_lightning as pl

from seq2seq_attn.alignment import heat_map
from seq2seq_attn.callback import attention_map
from seq2seq_attn.callback.attention_map import AttentionMap


def drawn(
    monkeypatch: pytest.MonkeyPatch,
    sentences: list[str],
    validations: int = 1,
    slots: Sequence[Any] = ("cross",),
    **options: int,
) -> list[str]:
    """The sentences of the maps, each word a token."""
    found: list[str] = []
    tokenizer = SimpleNamespace(
        encode_source=lambda texts: [[7] * len(text.split()) for text in texts], decode_target=lambda _: [""]
    )
    module: Any = SimpleNamespace(translates=True, model=None, tokenizer=tokenizer, search=None)
    trainer = Mock(pl.Trainer, is_global_zero=True, sanity_checking=False, global_step=3, loggers=[], strategy=None)
    trainer.datamodule = SimpleNamespace(corpus=SimpleNamespace(splits={"val": SimpleNamespace(sources=sentences)}))
    batches: list[list[list[int]]] = []

    def translated(*given: Any) -> list[list[int]]:
        batches.append(given[-1])
        return [[] for _ in given[-1]]

    monkeypatch.setattr(attention_map, "translate", translated)
    monkeypatch.setattr(attention_map, "attention_along", lambda *_: [("cross/0", None, [], [])])
    monkeypatch.setattr(heat_map, "save_attention_map", lambda path, *_: found.append(path.name))
    default = {"num_sentences": 3, "min_tokens": 3, "max_tokens": 5} | options
    callback = AttentionMap(folder="maps", log_pictures=False, slots=list(slots), **default)
    for _ in range(validations):
        callback.on_validation_end(trainer, module)
    chosen = [sentence for sentence, _ in callback._sources(trainer, tokenizer)]
    assert found == [f"cross_0_{number}" for number in range(len(chosen)) if "cross" in slots] * validations
    assert list(map(len, batches)) == [len(chosen)] * (validations if chosen else 0)
    return chosen


def test_sentences_of_middle_length_come_first_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = ["a", "b b b", "c c c c c c", "d d d d d", "e e", "f f f f", "g g g"]
    assert drawn(monkeypatch, sentences) == ["b b b", "d d d d d", "f f f f"]


def test_where_they_are_too_few_the_longest_of_the_short_ones_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, ["a", "b b", "", "c c c", "d d", "e e"]) == ["c c c", "b b", "d d"]
    assert drawn(monkeypatch, ["a", "b b"]) == ["b b", "a"]


def test_that_none_is_drawn_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert drawn(monkeypatch, ["", "a a a a a a"], validations=2) == []
    said = [
        "no attention map is drawn: none of the first 2 validation sentences has 1 to 5 tokens; raise "
        "callback.attention_map.max_tokens"
    ]
    assert caplog.messages == said
    assert drawn(monkeypatch, ["a a a a a a"], num_sentences=0) == []
    assert caplog.messages == said


def test_a_model_without_the_slots_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert drawn(monkeypatch, ["b b b"], validations=2, slots=["self", "encoder"]) == ["b b b"]
    said = "no attention map is drawn: callback.attention_map.slots names none of this model's: cross"
    assert caplog.messages == [said]
