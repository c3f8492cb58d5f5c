"""Beam search on models with given probabilities: worked examples, and a comparison with exhaustive search."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import END, TARGET, A, B, C, Scripted, beam, by_prefix, by_table, prefix_number, translated
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.beam import BeamSearch
from seq2seq_attn.search.greedy import GreedySearch
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.length_penalty.mean import MeanPenalty
from seq2seq_attn.search.length_penalty.wu import WuPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, by_score

pytestmark = pytest.mark.usefixtures("double")

# the likeliest first token does not begin the likeliest translation
MISLED = {(): {A: 0.5, B: 0.4, END: 0.1}, (A,): {A: 0.3, B: 0.3, END: 0.4}, (B,): {A: 0.1, END: 0.9}}
# A is likelier than A B, but not per token
SHORT_OR_LONG = {(): {A: 1.0}, (A,): {END: 0.5, B: 0.5}, (A, B): {END: 0.9, C: 0.1}}


def translations(script: dict, *overrides: str) -> list[tuple[list[int], float]]:
    """Return the translations and their probabilities."""
    (hypotheses,) = translated(Scripted(by_prefix(script)), beam(*overrides))
    return [(h.token_ids, pytest.approx(math.exp(h.log_prob), rel=1e-12)) for h in hypotheses]


def test_a_beam_of_two_finds_what_a_beam_of_one_misses() -> None:
    assert translations(MISLED, ".beam_size=1") == [([A], 0.5 * 0.4)]
    assert translations(MISLED, ".beam_size=2") == [([B], 0.4 * 0.9)]


def test_the_best_translations_come_in_the_order_of_their_scores() -> None:
    assert translations(MISLED, ".beam_size=2", ".num_best=2") == [([B], 0.4 * 0.9), ([A], 0.5 * 0.4)]
    # a beam of three also finishes the end that ranks third; after A, a second A is likelier than that end
    three = (".beam_size=3", ".num_best=3")
    assert translations(MISLED, *three) == [([B], 0.36), ([A], 0.2), ([A, A], 0.15)]
    assert translations(MISLED, *three, ".patience=1") == [([B], 0.36), ([A], 0.2), ([], 0.1)]


def test_the_score_is_the_log_prob_over_the_penalty_of_the_length_with_its_end() -> None:
    (none,), (wu,), (mean,) = (
        translated(Scripted(by_prefix(MISLED)), beam(f"/length_penalty={penalty}"))[0]
        for penalty in ("none", "wu", "mean")
    )
    assert none.score == none.log_prob == wu.log_prob == mean.log_prob == pytest.approx(math.log(0.36))
    assert wu.score == pytest.approx(math.log(0.36) / (7 / 6) ** 0.6, rel=1e-12)
    assert mean.score == pytest.approx(math.log(0.36) / 2, rel=1e-12)


@pytest.mark.parametrize("power", [0, 0.6, 1, 2.5, 10])
def test_the_score_is_the_log_prob_over_a_power_of_the_length_with_its_end(power: float) -> None:
    overrides = ("/length_penalty=mean", f".length_penalty.power={power}", ".num_best=5", ".limits.max_length=4")
    (found,) = translated(Scripted(by_prefix(MISLED)), beam(*overrides))
    assert {len(one.token_ids) for one in found} >= {1, 2}
    for one in found:
        assert one.score == pytest.approx(one.log_prob / (len(one.token_ids) + 1) ** power, rel=1e-12)


def test_a_power_of_1_is_the_mean_and_one_of_0_is_none() -> None:
    lengths = torch.arange(1, 1001)
    assert MeanPenalty()(lengths).tolist() == MeanPenalty(power=1.0)(lengths).tolist() == lengths.tolist()
    assert MeanPenalty(power=0)(lengths).tolist() == WuPenalty(alpha=0)(lengths).tolist() == [1.0] * 1000


@pytest.mark.parametrize("power", [0, 1e-17, 1e-9, 0.6, 1.5, 10])
def test_a_power_of_the_length_never_falls_and_is_finite(power: float) -> None:
    divisors = MeanPenalty(power=power)(torch.arange(1, 1_000_001))
    assert bool((divisors[1:] >= divisors[:-1]).all())
    assert bool((divisors >= 1).all())
    assert bool((-1 / divisors < 0).all())  # scores of infinite divisors would all be 0


@pytest.mark.parametrize("power", [-0.1, 10.1, math.inf, math.nan])
def test_a_power_outside_of_its_range_is_refused(power: float) -> None:
    with pytest.raises(
        UserError, match=r"^search.length_penalty.power=\S+ must be at least 0 and at most 10; use 1 for"
    ):
        MeanPenalty(power=power)
    with pytest.raises(
        UserError, match=r"^search.length_penalty.alpha=\S+ must be at least 0 and at most 10; use 0 for"
    ):
        WuPenalty(alpha=power)


@pytest.mark.parametrize(
    ("penalty", "best"),
    [
        (["/length_penalty=none"], [A]),  # -0.693 and -0.799
        (["/length_penalty=wu"], [A]),  # -0.632 and -0.672
        (["/length_penalty=wu", ".length_penalty.alpha=2"], [A, B]),  # -0.509 and -0.449
        (["/length_penalty=mean"], [A, B]),  # -0.347 and -0.266
        (["/length_penalty=mean", ".length_penalty.power=0.3"], [A]),  # -0.563 and -0.574
        (["/length_penalty=mean", ".length_penalty.power=0.4"], [A, B]),  # -0.525 and -0.515
    ],
)
def test_a_length_penalty_favours_longer_translations(penalty: list[str], best: list[int]) -> None:
    ((tokens, _),) = translations(SHORT_OR_LONG, *penalty)
    assert tokens == best


def test_a_finished_hypothesis_is_never_extended_and_still_wins() -> None:
    # after a finished A, another end token would cost nothing
    script = {(): {A: 0.6, B: 0.4}, (A,): {END: 0.8, C: 0.2}, (B,): {B: 1.0}, (B, B): {B: 0.5, END: 0.5}}
    overrides = ("/length_penalty=none", ".beam_size=2", ".num_best=2", ".patience=null")
    assert translations(script, *overrides) == [([A], 0.48), ([B, B], 0.2)]


def test_ends_among_the_best_candidates_finish_and_the_others_are_continued() -> None:
    # the end ranks third among the candidates: a beam of two does not take it and continues two hypotheses
    script = {(): {A: 0.4, B: 0.35, END: 0.25}, (A,): {A: 0.5, B: 0.5}, (B,): {A: 0.5, B: 0.5}}
    overrides = ("/length_penalty=none", ".patience=null")
    assert translations(script, *overrides, ".beam_size=2", ".num_best=2") == [([A, A], 0.2), ([A, B], 0.2)]
    assert translations(script, *overrides, ".beam_size=3", ".num_best=2") == [([], 0.25), ([A, A], 0.2)]


def test_ties_go_to_the_lower_hypothesis_then_to_the_lower_token() -> None:
    even = {(): {A: 0.5, B: 0.5}, (A,): {B: 0.5, C: 0.5}, (B,): {A: 0.5, C: 0.5}}
    hypotheses = translations(even, ".beam_size=4", ".num_best=4")
    assert [tokens for tokens, _ in hypotheses] == [[A, B], [A, C], [B, A], [B, C]]
    assert [tokens for tokens, _ in translations(even, ".beam_size=3", ".num_best=3")] == [[A, B], [A, C], [B, A]]
    assert [tokens for tokens, _ in translations(even, ".beam_size=1")] == [[A, B]]


def test_coverage_ranks_translations_of_the_whole_source_first() -> None:
    script = {(): {A: 0.6, B: 0.4}}
    read = {
        (): [0.8, 0.1, 0.1],
        (A,): [0.8, 0.1, 0.1],  # 1.6, 0.2, 0.2 of the source
        (B,): [0.2, 0.3, 0.5],  # 1.0, 0.4, 0.6
    }

    def attention(sentences: Tensor, tokens: Tensor) -> Tensor:
        return torch.tensor([read[tuple(row)] for row in tokens.tolist()])

    model = Scripted(by_prefix(script), attention)
    overrides = ("/length_penalty=none", ".beam_size=2", ".num_best=2")
    assert [h.token_ids for h in translated(model, beam(*overrides))[0]] == [[A], [B]]
    assert model.need_weights == {False}
    best, other = translated(model, beam(*overrides, ".coverage_penalty=0.5"))[0]
    assert model.need_weights == {False, True}
    assert (best.token_ids, other.token_ids) == ([B], [A])
    assert best.log_prob == pytest.approx(math.log(0.4))
    assert best.score == pytest.approx(math.log(0.4) + 0.5 * (math.log(0.4) + math.log(0.6)))
    assert other.score == pytest.approx(math.log(0.6) + 0.5 * 2 * math.log(0.2))


def test_coverage_counts_no_padding_and_a_position_never_read_does_not_hide_the_rest() -> None:
    def attention(sentences: Tensor, tokens: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.0, 0.0]]).expand(len(tokens), -1)

    model = Scripted(by_prefix({(): {A: 0.5, B: 0.25, C: 0.25}}), attention)
    search = beam("/length_penalty=none", ".coverage_penalty=0.1")
    source, mask = torch.zeros(2, 3, dtype=torch.long), torch.tensor([[True, True, False], [True] * 3])
    (short,), (long,) = search(model, source, mask, TARGET)
    assert short.score == pytest.approx(math.log(0.5) + 0.1 * math.log(1e-6))
    assert long.score == pytest.approx(math.log(0.5) + 0.1 * 2 * math.log(1e-6))


WORDS, LONGEST = 5, 5
PENALTIES = [
    WuPenalty(alpha=0.0), WuPenalty(alpha=0.8), MeanPenalty(), MeanPenalty(power=0), MeanPenalty(power=0.6),
    MeanPenalty(power=2.5),
]  # fmt: skip


@pytest.mark.parametrize("coverage", [0.0, 0.3])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_finds_the_best_of_all_translations(penalty: LengthPenalty, coverage: float) -> None:
    torch.manual_seed(7)
    prefixes = sum(WORDS**length for length in range(LONGEST + 1))
    table = (2 * torch.randn(2, prefixes, 2 + WORDS)).log_softmax(-1)
    read = torch.randn(2, prefixes, 3).softmax(-1)
    model = Scripted(by_table(table, WORDS), by_table(read, WORDS))
    search = BeamSearch(
        beam_size=WORDS**LONGEST,
        num_best=11,
        length_penalty=penalty,
        coverage_penalty=coverage,
        patience=None,
        no_repeat_ngram=0,
        limits=limits(0, LONGEST),
    )
    for sentence, hypotheses in enumerate(translated(model, search, sentences=2)):
        expected = sorted(every_translation(table[sentence], read[sentence], penalty, coverage), reverse=True)
        for (score, tokens), hypothesis in zip(expected, hypotheses, strict=False):
            assert hypothesis.token_ids == tokens
            assert hypothesis.score == pytest.approx(score, rel=1e-12)
        assert len(hypotheses) == 11


def every_translation(
    table: Tensor, read: Tensor, penalty: LengthPenalty, coverage: float
) -> list[tuple[float, list[int]]]:
    """Yield the scores and tokens of all strings, length by length."""
    scored = []
    for length in range(LONGEST + 1):
        strings = torch.tensor(list(product(range(A, A + WORDS), repeat=length)), dtype=torch.long)
        total, attention_received = torch.zeros(len(strings)), torch.zeros(len(strings), 3)
        for t in range(length + 1):
            number = prefix_number(strings[:, :t], WORDS)
            token = strings[:, t] if t < length else torch.full((len(strings),), END)
            total, attention_received = total + table[number, token], attention_received + read[number]
        scores = total / penalty(torch.tensor([length + 1]))
        scores += coverage * attention_received.clamp(max=1).log().sum(-1)
        scored += zip(scores.tolist(), strings.tolist(), strict=True)
    return scored


def limits(least: int, most: int) -> Limits:
    return Limits(
        max_length=most, max_relative_length=99.0, max_extra_length=0, min_length=least, min_relative_length=0.0
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 999),
    even=st.booleans(),
    beam_size=st.integers(1, 4),
    num_best=st.integers(1, 3),
    patience=st.sampled_from([None, 0.5, 1.0, 2.0]),
    penalty=st.sampled_from(
        [WuPenalty(alpha=0.0), WuPenalty(alpha=1.0), *(MeanPenalty(power=power) for power in (0, 0.6, 1, 2.5, 10))]
    ),
    lengths=st.sampled_from([(0, 4), (2, 4), (0, 1), (3, 3)]),
)
def test_stopping_early_changes_nothing(
    seed: int,
    even: bool,
    beam_size: int,
    num_best: int,
    patience: float | None,
    penalty: LengthPenalty,
    lengths: tuple[int, int],
) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(5, 121, 2 + 3, generator=generator, dtype=torch.float64)
    # many ties, some impossible; or no ties
    table = table.mul(2).round().clamp(-4, 0) * math.log(2) if even else (3 * table).log_softmax(-1)
    num_best = min(num_best, beam_size)
    max_finished = math.inf if patience is None else max(num_best, patience * beam_size)
    search = BeamSearch(
        beam_size=beam_size,
        num_best=num_best,
        length_penalty=penalty,
        coverage_penalty=0.0,
        patience=patience,
        no_repeat_ngram=0,
        limits=limits(*lengths),
    )
    together = translated(Scripted(by_table(table, 3)), search, sentences=5)
    for sentence, hypotheses in enumerate(together):
        patient = without_stopping(table[sentence], beam_size, max_finished, penalty, *lengths)
        assert [tuple(h) for h in hypotheses] == patient[:num_best]


def without_stopping(
    table: Tensor, beam_size: int, max_finished: float, penalty: LengthPenalty, least: int, most: int
) -> list[tuple[list[int], float, float]]:
    """Beam search as defined: one sentence, with lists, until no hypothesis is left."""
    active: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[list[int], float, float]] = []
    for t in range(most + 1):
        divisor = penalty(torch.tensor([t + 1])).item()
        allowed = [END] if t == most else [A, B, C] if t < least else [END, A, B, C]
        candidates = []
        for total, tokens in active:
            row = table[prefix_number(torch.tensor([tokens], dtype=torch.long), 3)[0]].tolist()
            candidates += [(total + row[token], tokens, token) for token in allowed]
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beam_size]
        for total, tokens, token in candidates[:beam_size]:
            if token == END:
                finished.append((tokens, total, total / divisor))
        active = [(total, [*tokens, token]) for total, tokens, token in candidates if token != END][:beam_size]
        if not active or len(finished) >= max_finished:
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis[2])


def test_a_beam_of_one_is_greedy_search() -> None:
    torch.manual_seed(5)
    table = (2 * torch.randn(11, 121, 2 + 3)).log_softmax(-1)
    greedy = translated(Scripted(by_table(table, 3)), GreedySearch(limits=limits(0, 4)), sentences=11)
    for penalty in ("none", "wu", "mean"):
        search = beam(".beam_size=1", ".patience=1", f"/length_penalty={penalty}", ".limits.max_length=4")
        narrow = translated(Scripted(by_table(table, 3)), search, sentences=11)
        assert [h.token_ids for (h,) in narrow] == [h.token_ids for (h,) in greedy]
        assert [h.log_prob for (h,) in narrow] == pytest.approx([h.log_prob for (h,) in greedy], rel=1e-12)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"num_best": 6}, r"^search.num_best=6 must be at least 1 and at most search.beam_size=5; "),
        ({"coverage_penalty": -0.5}, r"^search.coverage_penalty=-0.5 would reward untranslated words; use 0 or more$"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: dict[str, Any], sentence: str) -> None:
    numbers: dict[str, Any] = {"beam_size": 5, "num_best": 1, "coverage_penalty": 0.0, "patience": None} | overrides
    with pytest.raises(UserError, match=sentence):
        BeamSearch(**numbers, length_penalty=MeanPenalty(), no_repeat_ngram=0, limits=limits(0, LONGEST))


def test_a_score_that_is_nan_is_ranked_first_and_not_hidden() -> None:
    scores = [-2.0, math.nan, -1.0, -math.inf]
    ranked = sorted((Hypothesis([], score, score) for score in scores), key=by_score)
    assert [str(hypothesis.score) for hypothesis in ranked] == ["nan", "-1.0", "-2.0", "-inf"]
