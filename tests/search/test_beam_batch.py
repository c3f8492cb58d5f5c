"""Beam search in batches: with any model, a translation does not depend on the other sentences of the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import options
from scripted import END, A, B, C, Scripted, ScriptedState, beam, by_prefix, by_table, translated
from test_greedy import BOS, EOS, MASK, SOURCE, TARGET, peaked
from torch import Tensor

from seq2seq_attn.search.beam import LEAST_ATTENTION
from seq2seq_attn.search.search import Hypothesis

SHORT = (".limits.max_relative_length=1.0", ".limits.max_extra_length=4")  # at most four tokens longer than the source
pytestmark = pytest.mark.usefixtures("double")


def check_alone(model: Any, search: Any, found: list[list[Hypothesis]]) -> None:
    for row, length in enumerate(MASK.sum(-1).tolist()):
        (alone,) = search(model, SOURCE[row : row + 1, :length], MASK[row : row + 1, :length], TARGET)
        assert [h.token_ids for h in alone] == [h.token_ids for h in found[row]]
        for name in ("log_prob", "score"):
            mine, theirs = ([getattr(h, name) for h in best] for best in (alone, found[row]))
            assert mine == pytest.approx(theirs, rel=1e-12, abs=1e-9)


CROSSINGS = [
    # greedy search is tried in every crossing
    pytest.param(encoder, decoder, marks=[] if (i + k) % 3 == 0 else pytest.mark.slow)
    for i, encoder in enumerate(options("encoder"))
    for k, decoder in enumerate(options("decoder"))
]


@pytest.mark.parametrize(("encoder", "decoder"), CROSSINGS)
def test_a_batch_is_translated_as_its_sentences_alone(encoder: str, decoder: str) -> None:
    model = peaked(encoder, decoder)
    search = beam(*SHORT, ".num_best=3", ".coverage_penalty=0.2")
    together = search(model, SOURCE, MASK, TARGET)
    assert len({len(best.token_ids) for best, *_ in together}) > 1
    check_alone(model, search, together)


@pytest.mark.parametrize("decoder", options("decoder"))
def test_the_log_prob_is_that_of_forced_scoring(decoder: str) -> None:
    model = peaked(decoder=decoder)
    search = beam(".num_best=5", ".no_repeat_ngram=2", *SHORT)
    found = search(model, SOURCE, MASK, TARGET, prefixes=[[5], [], [7, 4], []])
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 5
        assert sorted((h.score for h in hypotheses), reverse=True) == [h.score for h in hypotheses]
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS, *hypothesis.token_ids]])
            hidden = model(SOURCE[row : row + 1], MASK[row : row + 1], target).hidden
            tokens = torch.tensor([*hypothesis.token_ids, EOS])
            expected = model.logits(hidden)[0].log_softmax(-1).gather(-1, tokens[:, None]).sum()
            assert hypothesis.log_prob == pytest.approx(expected.item(), abs=1e-9)


def test_the_received_attention_is_that_of_one_forced_pass() -> None:
    model = peaked("transformer", "transformer", "cross_attention.num_heads=2")
    search = beam(*SHORT, ".num_best=5", ".coverage_penalty=1", "/length_penalty=none")
    for row, hypotheses in enumerate(search(model, SOURCE, MASK, TARGET)):
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS, *hypothesis.token_ids]])
            decoded = model(SOURCE[row : row + 1], MASK[row : row + 1], target, need_weights=True)
            cross = [w for slot, w in decoded.weights.items() if slot.startswith("cross/")]
            assert [w.shape[1] for w in cross] == [2, 2]  # heads, by layer
            attention_received = torch.stack(cross).mean((0, 2))[0].sum(0)[MASK[row]]
            penalty = attention_received.clamp(LEAST_ATTENTION, 1).log().sum().item()
            assert hypothesis.score == pytest.approx(hypothesis.log_prob + penalty, abs=1e-9)


def test_the_order_of_sentences_and_more_padding_change_nothing() -> None:
    model, search = peaked("transformer", "transformer"), beam(".num_best=2")
    found = search(model, SOURCE, MASK, TARGET)
    order = torch.tensor([2, 0, 3, 1, 0])
    padded, mask = (torch.nn.functional.pad(x[order], (0, 3)) for x in (SOURCE, MASK))
    again = search(model, padded, mask, TARGET)
    for row, hypotheses in zip(order.tolist(), again, strict=True):
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in found[row]]
        assert [h.log_prob for h in hypotheses] == pytest.approx([h.log_prob for h in found[row]], rel=1e-12)


def test_finished_sentences_leave_and_all_others_have_equally_many_rows() -> None:
    # sentence n is translated as n times A; its source has one row in memory until it is finished
    def log_probs(sentences: Tensor, tokens: Tensor) -> Tensor:
        rows = torch.full((len(tokens), 7), -9.0)
        rows[torch.arange(len(tokens)), torch.where(sentences <= tokens.shape[1], END, A)] = -0.001
        return rows

    model = Scripted(log_probs)
    found = translated(model, beam(".beam_size=2", ".patience=null"), sentences=3)
    assert [h.token_ids for (h,) in found] == [[], [A], [A, A]]
    assert model.sizes == [(3, 3), (2, 4), (1, 2)]


def test_a_beam_is_as_wide_as_there_are_hypotheses() -> None:
    script = {(): {A: 1.0}, (A,): {B: 0.7, C: 0.3}, (A, B): {B: 0.5, C: 0.5}, (A, C): {A: 1.0}}
    model = Scripted(by_prefix(script))
    assert [h.token_ids for h in translated(model, beam(".num_best=5"))[0]] == [[A, B, B], [A, B, C], [A, C, A]]
    assert model.sizes == [(1, 1), (1, 1), (1, 2), (1, 3)]


def test_a_forced_beginning_is_read_by_one_hypothesis() -> None:
    table = torch.randn(2, 3000, 7).log_softmax(-1)
    model = Scripted(by_table(table, 5))
    found = translated(model, beam(".limits.max_length=4"), sentences=2, prefixes=[[C, C, C], [B, A, B]])
    assert [h.token_ids[:3] for (h,) in found] == [[C, C, C], [B, A, B]]
    assert model.sizes[:4] == [(2, 2)] * 4
    assert model.sizes[4] in [(1, 5), (2, 10)]


def test_hypotheses_that_stay_where_they_are_move_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[list[int]] = []
    branch = ScriptedState.branch

    def counted(state: ScriptedState, rows: Tensor) -> ScriptedState:
        moves.append(rows.tolist())
        return branch(state, rows)

    monkeypatch.setattr(ScriptedState, "branch", counted)
    translated(Scripted(by_prefix({(): {A: 1.0}, (A,): {B: 1.0}, (A, B): {C: 1.0}})), beam(".beam_size=1"))
    assert moves == []
    translated(Scripted(by_prefix({(): {A: 0.6, B: 0.4}, (A,): {B: 1.0}, (B,): {C: 1.0}})), beam())
    assert moves == [[0, 0]]


def test_a_vocabulary_of_one_word_has_as_many_translations_as_lengths() -> None:
    table = torch.tensor([[-1.0, -2.0, -0.5]]).expand(1, 99, 3)
    search = beam(".num_best=5", "/length_penalty=none", ".patience=null", ".limits.max_length=3")
    (found,) = translated(Scripted(by_table(table, 1)), search)
    assert [(h.token_ids, h.log_prob) for h in found] == [([], -2.0), ([A], -2.5), ([A, A], -3.0), ([A, A, A], -3.5)]
