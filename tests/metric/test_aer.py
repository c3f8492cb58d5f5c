"""The alignment error rate as a metric of validations and tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_checkpoint import write_checkpoint
from training.test_toy_tasks import model_for

from seq2seq_attn.alignment.attention_links import Heads, attended_links, word_maps
from seq2seq_attn.alignment.gold import agreement, read_aligned_pairs
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.aer import AER
from seq2seq_attn.model.ensemble import Ensemble

GUIDED = {"guided_alignment": {"links": "eflomal", "weight": 0.05, "layer": None, "head": 1}}
LINES = "the red house ||| the house red  0-0 1-2 2-1\na dog ||| a dog  0-0 1p1\n"


@pytest.fixture
def gold(tmp_path: Path) -> str:
    (tmp_path / "gold").write_text(LINES, encoding="utf-8")
    return str(tmp_path / "gold")


def test_it_is_the_error_rate_of_the_links_of_the_model_as_it_is(gold: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", "model=transformer", "model.encoder.num_layers=1")
    loaded = load(str(tmp_path / "a.ckpt"))
    metric = AER(gold=gold, layer=1, head=0, shift=True, sink=False)
    metric.update(loaded.model, loaded.tokenizer, loaded.config)
    pairs = read_aligned_pairs([Path(gold)])
    maps = word_maps(loaded.model, loaded.tokenizer, [(pair.source, pair.target) for pair in pairs], loaded.config)
    links = [attended_links(one, Heads(1, 0), Extraction(None, True, False)) for one in maps]
    assert sum(map(len, links)) == 5  # without the end token each target word has a link
    assert metric.compute() == agreement(links, pairs).error_rate


def test_a_layer_or_a_head_that_is_not_there_is_refused_before_training(gold: str) -> None:
    model = model_for("transformer", "model.decoder.num_layers=3", "cross_attention.num_heads=2")
    AER(gold=gold, layer=2, head=1).check(model, {})
    with pytest.raises(UserError, match=r"^metric\.aer\.layer=3 does not exist; choose from 0 to 2$"):
        AER(gold=gold, layer=3).check(model, {})
    for layer in (None, 0):
        with pytest.raises(UserError, match=r"^metric\.aer\.head=2 does not exist; choose from 0 to 1$"):
            AER(gold=gold, layer=layer, head=2).check(model, {})
    Path(gold).write_text("a ||| b  1-1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"set metric\.aer\.gold_start to 1"):
        AER(gold=gold)


def test_a_pair_of_too_many_tokens_is_refused_before_training_with_its_line(gold: str, tmp_path: Path) -> None:
    overrides = "model=transformer", "position=learned", "position.max_length=20"
    write_checkpoint(tmp_path / "a.ckpt", *overrides)
    loaded = load(str(tmp_path / "a.ckpt"))
    AER(gold=gold).check_lengths(loaded.model, loaded.tokenizer, loaded.config)
    with Path(gold).open("a", encoding="utf-8") as file:
        file.write(f"{'cat ' * 30} ||| a cat  0-0\n")
    metric = AER(gold=gold)
    with pytest.raises(UserError, match=r"^metric.aer.gold=\S+gold, line 3: a pair of \d+ tokens, and the model has"):
        metric.check_lengths(loaded.model, loaded.tokenizer, loaded.config)
    with pytest.raises(UserError, match="positions for 20; leave it out"):  # the same pairs as in a validation
        metric.update(loaded.model, loaded.tokenizer, loaded.config)


def test_a_head_that_a_kernel_attention_lacks_is_refused_before_training(gold: str) -> None:
    model = model_for("transformer", "attention@cross_attention=linear", "cross_attention.num_heads=2")
    AER(gold=gold, head=1).check(model, {})
    with pytest.raises(UserError, match=r"^metric\.aer\.head=2 does not exist; choose from 0 to 1$"):
        AER(gold=gold, head=2).check(model, {})


def test_the_guided_head_is_named_once_before_training(gold: str, caplog: pytest.LogCaptureFixture) -> None:
    model = model_for("transformer", "model.decoder.num_layers=3", "cross_attention.num_heads=2")
    caplog.set_level("INFO")
    AER(gold=gold).check(model, {})
    AER(gold=gold, layer=2, head=1).check(model, GUIDED)
    assert not caplog.messages
    AER(gold=gold).check(model, GUIDED)
    (note,) = caplog.messages
    assert note.startswith("metric.aer is of layer 1, head 1, the guided head; ")


def test_the_guided_head_of_a_guided_run_is_scored_unless_another_is_chosen(gold: str, tmp_path: Path) -> None:
    layers = [f"model.{part}.num_layers=3" for part in ("encoder", "decoder")]
    write_checkpoint(tmp_path / "a.ckpt", "model=transformer", *layers, "cross_attention.num_heads=2")
    model, tokenizer, config = load(str(tmp_path / "a.ckpt"))
    pairs = read_aligned_pairs([Path(gold)])
    maps = word_maps(model, tokenizer, [(pair.source, pair.target) for pair in pairs], config)
    rates = {
        heads: agreement([attended_links(one, heads, Extraction(sink=False)) for one in maps], pairs).error_rate
        for heads in (Heads(1, 1), Heads(), Heads(2, 1))
    }
    assert len(set(rates.values())) == len(rates)
    for options, of_run, heads in (
        ({}, GUIDED, Heads(1, 1)),
        ({}, {"guided_alignment": {"links": None, "weight": 0.05, "layer": None, "head": 1}}, Heads()),
        ({}, {"guided_alignment": {"links": "eflomal", "weight": 0, "layer": None, "head": 1}}, Heads()),
        ({"layer": 2, "head": 1}, GUIDED, Heads(2, 1)),
    ):
        metric = AER(gold=gold, sink=False, **options)
        metric.update(model, tokenizer, config | of_run)
        assert metric.compute() == rates[heads]


@pytest.mark.slow  # the guided head alone is tested above
def test_links_are_read_from_the_step_that_guided_alignment_teaches(gold: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", "model=transformer", "cross_attention.num_heads=7")
    model, tokenizer, config = load(str(tmp_path / "a.ckpt"))

    def rate(head: int, *, taught: bool, given: bool | None, weight: int = 1) -> float:
        metric = AER(gold=gold, layer=0, head=head, shift=given, sink=False)
        guided = {"links": "eflomal", "weight": weight, "shift": taught}
        metric.update(model, tokenizer, config | {"guided_alignment": guided})
        return float(metric.compute())

    differ = 0
    for head in range(7):
        written, read = (rate(head, taught=not given, given=given) for given in (False, True))
        assert (rate(head, taught=False, given=None), rate(head, taught=True, given=None)) == (written, read)
        assert rate(head, taught=True, given=None, weight=0) == written
        differ += written != read
    assert differ


def test_words_are_normalised_as_the_run_normalises_its_texts(gold: str, tmp_path: Path) -> None:
    cleaning = ("data.cleaning.lowercase=true", "data.cleaning.split_punctuation=true")
    write_checkpoint(tmp_path / "a.ckpt", "model=transformer", *cleaning)
    model, tokenizer, config = load(str(tmp_path / "a.ckpt"))
    plain, as_is = (["the", "house", "."], ["le", "chat"]), (["The", "house."], ["Le", "CHAT"])
    maps = [word_maps(model, tokenizer, [pair], config)[0] for pair in (plain, as_is)]
    assert maps[0].maps[0].columns == maps[1].maps[0].columns
    for one, other in zip(*(of_pair.maps for of_pair in maps), strict=True):
        assert np.array_equal(one.weights, other.weights)
    assert maps[1].num_words == (2, 2)
    assert maps[1].source.max() == 1


def test_less_is_better_and_an_ensemble_is_refused(gold: str, tmp_path: Path) -> None:
    assert not AER.higher_is_better
    write_checkpoint(tmp_path / "a.ckpt")
    loaded = load(str(tmp_path / "a.ckpt"))
    with pytest.raises(UserError, match="one model's attention"):
        AER(gold=gold).update(Ensemble([loaded.model, loaded.model]), loaded.tokenizer, {})
