"""Greedy search, compared with decoding each sentence alone and with forced scoring."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import built, composed, model_of, options
from search.scripted import END, Scripted, translated
from torch import Tensor

from seq2seq_attn.search.search import TargetVocabulary

BOS, EOS = 2, 3
SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0], [11, 12, 13, 3, 0]])
MASK = SOURCE != 0
TARGET = TargetVocabulary(BOS, EOS, (0, 1, 2), list)
pytestmark = pytest.mark.usefixtures("double")


def search(**limits: float) -> Any:
    return built(composed(*(f"search.limits.{name}={value}" for name, value in limits.items())).search)


def run(model: Any, source: Tensor, mask: Tensor, **limits: float) -> list[Any]:
    found = search(**limits)(model, source, mask, TARGET)
    return [best for (best,) in found]


def peaked(encoder: str = "rnn", decoder: str = "rnn", *overrides: str) -> Any:
    """Return a random model without near-ties whose translations have various lengths."""
    torch.manual_seed(3)
    model = model_of(f"encoder@model.encoder={encoder}", f"decoder@model.decoder={decoder}", *overrides).eval()
    for parameter in model.parameters():
        parameter.data *= 3
    return model


# Every decoder beside the encoder of its kind, and every encoder beside the first decoder. The other crossings are
# slow: test_model_contract.py holds the steps of each to teacher forcing.
CROSSINGS = [
    pytest.param(encoder, decoder, marks=[] if decoder == "rnn" or decoder.startswith(encoder) else pytest.mark.slow)
    for encoder in options("encoder")
    for decoder in options("decoder")
]


@pytest.mark.parametrize(("encoder", "decoder"), CROSSINGS)
def test_a_batch_is_translated_as_its_sentences_alone(encoder: str, decoder: str) -> None:
    model = peaked(encoder, decoder)
    together = run(model, SOURCE, MASK)
    assert len({len(hypothesis.token_ids) for hypothesis in together}) > 1
    for row, length in enumerate(MASK.sum(-1).tolist()):
        (alone,) = run(model, SOURCE[row : row + 1, :length], MASK[row : row + 1, :length])
        assert alone.token_ids == together[row].token_ids
        assert alone.log_prob == pytest.approx(together[row].log_prob, rel=1e-12, abs=1e-9)


def test_the_score_is_that_of_forced_scoring() -> None:
    model = peaked()
    for row, hypothesis in enumerate(run(model, SOURCE, MASK)):
        target = torch.tensor([[BOS, *hypothesis.token_ids]])
        log_probs = model.logits(model(SOURCE[row : row + 1], MASK[row : row + 1], target).hidden).log_softmax(-1)
        tokens = torch.tensor([*hypothesis.token_ids, EOS])
        expected = log_probs[0].gather(-1, tokens[:, None]).sum()
        assert hypothesis.log_prob == pytest.approx(expected.item(), abs=1e-9)


def test_each_token_is_the_likeliest_that_is_not_banned() -> None:
    model = peaked()
    (hypothesis,) = run(model, SOURCE[:1], MASK[:1])
    target = torch.tensor([[BOS, *hypothesis.token_ids]])
    logits = model.logits(model(SOURCE[:1], MASK[:1], target).hidden)[0]
    logits[:, [0, 1, 2]] = -torch.inf
    assert logits.argmax(-1)[: len(hypothesis.token_ids)].tolist() == hypothesis.token_ids


@pytest.mark.parametrize("name", [name for name in options("search") if name != "mbr"])  # which has one of them
def test_log_probabilities_of_float32_are_summed_in_float64(name: str) -> None:
    torch.set_default_dtype(torch.float32)  # of the sums, if they had no type of their own
    log_probs = torch.randn(7).log_softmax(-1)
    model = Scripted(lambda sentences, tokens: log_probs.expand(len(tokens), -1).clone())
    lengths = ("max_length=50", "min_length=50", "max_relative_length=50.0")
    several = built(composed(f"search={name}", *(f"search.limits.{length}" for length in lengths)).search)
    (found,) = translated(model, several)
    for hypothesis in found:
        assert len(hypothesis.token_ids) == 50
        expected = math.fsum(log_probs[token].item() for token in [*hypothesis.token_ids, END])
        assert hypothesis.log_prob == pytest.approx(expected, rel=1e-13)


def test_the_limit_is_that_of_each_source_and_the_end_is_forced_there() -> None:
    model = peaked()
    model.output.bias.data[EOS] = -1e9  # never ends by itself
    found = run(model, SOURCE, MASK, max_relative_length=1.0, max_extra_length=2)
    assert [len(hypothesis.token_ids) for hypothesis in found] == [7, 5, 4, 6]
    assert [len(h.token_ids) for h in run(model, SOURCE, MASK, max_length=3)] == [3, 3, 3, 3]
