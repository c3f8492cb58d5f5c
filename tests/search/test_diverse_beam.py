"""Diverse beam search on models with given probabilities, compared with its definition and with beam search."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from configs import built, composed, options
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import END, A, B, C, D, E, Scripted, by_prefix, by_table, prefix_number, translated
from test_beam import limits
from test_greedy import BOS, EOS, TARGET, peaked
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.beam import BeamSearch
from seq2seq_attn.search.diverse_beam import DiverseBeamSearch
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.length_penalty.mean import MeanPenalty
from seq2seq_attn.search.length_penalty.wu import WuPenalty
from seq2seq_attn.search.search import Hypothesis

HALF = math.log(2)  # halves the probability of a token for each earlier choice of it
STRONG = 30.0  # nats; more than random weights can make up for
SOURCES = [[4, 5, 6, 7, 3], [8, 9, 3], [10, 3], [11, 12, 13, 3], [5, 3], [7, 7, 8, 9, 10, 11, 3], [4, 9, 3]]
SHORT = (".limits.max_relative_length=1.0", ".limits.max_extra_length=4")
pytestmark = pytest.mark.usefixtures("double")


def diverse(*overrides: str) -> Any:
    return built(composed("search=diverse_beam", *(f"search{override}" for override in overrides)).search)


def groups(count: int, size: int, diversity: float, *overrides: str) -> Any:
    """Return a diverse beam search that reports the hypotheses of all groups."""
    sizes = (f".beam_size={count * size}", f".num_groups={count}", f".num_best={count * size}")
    return diverse(*sizes, f".diversity={diversity}", *overrides)


def translations(script: dict, search: Any) -> list[tuple[list[int], float]]:
    """Return the translations and their probabilities without penalties."""
    (hypotheses,) = translated(Scripted(by_prefix(script)), search)
    return [(h.token_ids, pytest.approx(math.exp(h.log_prob), rel=1e-12)) for h in hypotheses]


def test_a_token_costs_a_group_diversity_for_each_earlier_choice_of_it() -> None:
    script = {
        (): {A: 0.5, B: 0.3, C: 0.2},  # the third group finds 0.25, 0.15, 0.2
        (A,): {A: 0.45, B: 0.3, C: 0.25},  # 0.225, 0.15, 0.25: the second group has just chosen B
        (B,): {A: 0.6, B: 0.4},  # the second group finds 0.3, 0.4
    }
    assert translations(script, groups(3, 1, HALF)) == [([A, A], 0.225), ([A, C], 0.125), ([B, B], 0.12)]
    assert translations(script, groups(2, 1, HALF)) == [([A, A], 0.225), ([B, B], 0.12)]
    assert translations(script, groups(3, 1, 0)) == [([A, A], 0.225)]


def test_two_hypotheses_of_one_group_that_choose_a_token_cost_the_next_twice() -> None:
    script = {(): {A: 0.6, B: 0.4}, (A,): {C: 0.8, D: 0.2}, (B,): {C: 0.9, D: 0.1}}
    # first A C 0.48, B C 0.36; then A is 0.3 and B 0.2: A C 0.06, A D 0.06, B C 0.045, B D 0.02
    expected = [([A, C], 0.48), ([B, C], 0.36), ([A, D], 0.12)]
    assert translations(script, groups(2, 2, HALF)) == expected
    # paid once it would be A C and B C again
    assert translations(script, groups(2, 2, HALF / 2)) == expected[:2]


def test_penalties_accumulate() -> None:
    script = {
        (): {A: 0.5, B: 0.3, C: 0.2},  # first A, B; then A, which is 0.25 now, and C
        (A,): {A: 0.5, B: 0.5},
        (B,): {D: 1.0},  # first B D 0.3, A A 0.25
        (C,): {E: 0.55, D: 0.45},  # then A B 0.125, C E 0.11, C D 0.045, A A 0.0625 where it was 0.25
    }
    expected = [([B, D], 0.3), ([A, A], 0.25), ([A, B], 0.25), ([C, E], 0.11)]
    assert translations(script, groups(2, 2, HALF)) == expected


def test_the_end_token_is_penalised_too() -> None:
    script = {(): {END: 0.5, A: 0.3, B: 0.2}}  # then the end is an eighth, and A 0.075
    assert translations(script, groups(2, 1, 2 * HALF)) == [([], 0.5), ([B], 0.2)]


def test_a_settled_group_causes_no_penalties() -> None:
    # the first group ends at once and is settled; had it continued with A, A after C would count 0.3
    script = {(): {END: 0.5, A: 0.3, C: 0.2}, (A,): {A: 1.0}, (C,): {A: 0.6, B: 0.4}}
    assert translations(script, groups(2, 1, 2 * HALF, "/length_penalty=none")) == [([], 0.5), ([C, A], 0.12)]
    expected = [([A, A], 0.3), ([C, B], 0.08)]
    least = ("/length_penalty=none", ".limits.min_length=1")
    assert translations(script, groups(2, 1, 2 * HALF, *least)) == expected


def test_each_group_finds_its_share_and_the_best_of_all_are_reported() -> None:
    script = {(): {A: 0.4, B: 0.3, C: 0.2, D: 0.1}}
    for num_best, expected in {1: [A], 2: [A, C], 3: [A, B, C], 4: [A, B, C, D]}.items():
        hypotheses = translations(script, groups(2, 2, 10, f".num_best={num_best}"))
        assert [tokens for tokens, _ in hypotheses] == [[token] for token in expected]


@pytest.mark.slow
def test_scores_have_no_penalties() -> None:
    # the second group is penalised for its A and continues with 0.45; then A counts 0.3 and B 0.4
    script = {(): {A: 0.9, B: 0.1}, (A,): {A: 0.6, B: 0.4}}
    search = groups(2, 1, HALF, "/length_penalty=mean")
    first, second = translated(Scripted(by_prefix(script)), search)[0]
    assert (first.token_ids, second.token_ids) == ([A, A], [A, B])
    assert first.score == pytest.approx(math.log(0.9 * 0.6) / 3, rel=1e-12)
    assert second.score == pytest.approx(math.log(0.9 * 0.4) / 3, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 999),
    even=st.booleans(),
    size=st.integers(1, 3),
    count=st.integers(1, 4),
    diversity=st.sampled_from([0, HALF, 0.3, 5.0]),
    num_best=st.integers(1, 12),
    patience=st.sampled_from([None, 0.5, 1.0]),
    penalty=st.sampled_from([WuPenalty(alpha=0.0), WuPenalty(alpha=1.0), MeanPenalty(), MeanPenalty(power=2.5)]),
    lengths=st.sampled_from([(0, 4), (2, 4), (0, 1), (3, 3)]),
    prefix=st.sampled_from([[], [B], [C, A]]),
)
def test_the_whole_batch_at_once_finds_what_the_definition_does(
    seed: int,
    even: bool,
    size: int,
    count: int,
    diversity: float,
    num_best: int,
    patience: float | None,
    penalty: LengthPenalty,
    lengths: tuple[int, int],
    prefix: list[int],
) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(5, 121, 2 + 3, generator=generator, dtype=torch.float64)
    # many ties, or none
    table = table.mul(2).round().clamp(-4, 0) * math.log(2) if even else (3 * table).log_softmax(-1)
    num_best, longest = min(num_best, size * count), max(lengths[1], len(prefix))
    search = DiverseBeamSearch(
        beam_size=size * count,
        num_groups=count,
        diversity=diversity,
        num_best=num_best,
        length_penalty=penalty,
        patience=patience,
        no_repeat_ngram=0,
        limits=limits(*lengths),
    )
    together = translated(Scripted(by_table(table, 3)), search, sentences=5, prefixes=[prefix] * 4 + [[]])
    for sentence, hypotheses in enumerate(together):
        begun, most = ([], lengths[1]) if sentence == 4 else (prefix, longest)
        expected = by_definition(
            table[sentence], size, count, diversity, num_best, patience, penalty, lengths[0], most, begun
        )
        assert [tuple(h) for h in hypotheses] == expected


def by_definition(
    table: Tensor,
    size: int,
    count: int,
    diversity: float,
    num_best: int,
    patience: float | None,
    penalty: LengthPenalty,
    least: int,
    most: int,
    prefix: list[int],
) -> list[tuple[list[int], float, float]]:
    """Diverse beam search as defined: one sentence, with lists, one group after another."""
    divisors = penalty(torch.arange(1, most + 2)).tolist()
    share = math.ceil(num_best / count)
    max_finished = math.inf if patience is None else max(share, patience * size)
    # penalised log-probability, log-probability, tokens
    active: list[list[tuple[float, float, list[int]]]] = [[(0.0, 0.0, [])] for _ in range(count)]
    finished: list[list[tuple[float, float, list[int]]]] = [[] for _ in range(count)]
    for t in range(most + 1):
        allowed = [END] if t == most else [A, B, C] if t < least else [END, A, B, C]
        allowed = [prefix[t]] if t < len(prefix) else allowed
        chosen: Counter[int] = Counter()
        for group in range(count):
            candidates = []
            for total, own, tokens in active[group]:
                row = table[prefix_number(torch.tensor([tokens], dtype=torch.long), 3)[0]].tolist()
                candidates += [(total + row[p] - diversity * chosen[p], own + row[p], [*tokens, p]) for p in allowed]
            candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * size]
            ended = [candidate for candidate in candidates[:size] if candidate[2][-1] == END]
            active[group] = [candidate for candidate in candidates if candidate[2][-1] != END][:size]
            if t >= len(prefix):
                chosen.update(candidate[2][-1] for candidate in ended + active[group])
            finished[group] += [(total / divisors[t], own, tokens[:-1]) for total, own, tokens in ended]
            best = sorted(finished[group], key=lambda hypothesis: -hypothesis[0])[:share]
            bar = best[-1][0] if len(best) == share else -math.inf
            bar = math.inf if len(finished[group]) >= max_finished else bar
            if active[group] and active[group][0][0] / divisors[most] <= bar:
                active[group] = []
    merged: dict[tuple[int, ...], tuple[list[int], float, float]] = {}
    for of_group in finished:
        for _, own, tokens in sorted(of_group, key=lambda hypothesis: -hypothesis[0])[:share]:
            merged.setdefault(tuple(tokens), (tokens, own, own / divisors[len(tokens)]))
    return sorted(merged.values(), key=lambda hypothesis: -hypothesis[2])[:num_best]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    even=st.booleans(),
    beam_size=st.integers(1, 5),
    num_best=st.integers(1, 5),
    patience=st.sampled_from([None, 0.5, 2.0]),
    no_repeat_ngram=st.integers(0, 2),
    penalty=st.sampled_from([WuPenalty(alpha=1.0), MeanPenalty()]),
)
def test_one_group_is_beam_search_and_without_diversity_all_groups_are_the_first(
    seed: int,
    even: bool,
    beam_size: int,
    num_best: int,
    patience: float | None,
    no_repeat_ngram: int,
    penalty: LengthPenalty,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(3, 121, 2 + 3, generator=generator, dtype=torch.float64)
    table = table.mul(2).round().clamp(-4, 0) * math.log(2) if even else (3 * table).log_softmax(-1)
    table = table.float()  # as a model's are
    num_best = min(num_best, beam_size)
    same = {"length_penalty": penalty, "patience": patience, "no_repeat_ngram": no_repeat_ngram, "limits": limits(0, 4)}
    beam = BeamSearch(beam_size=beam_size, num_best=num_best, coverage_penalty=0.0, **same)
    expected = translated(Scripted(by_table(table, 3)), beam, sentences=3)
    for count, diversity in ((1, 0.7), (3, 0)):
        sizes = {"beam_size": count * beam_size, "num_groups": count, "num_best": count * num_best}
        search = DiverseBeamSearch(**sizes, diversity=diversity, **same)
        assert translated(Scripted(by_table(table, 3)), search, sentences=3) == expected


def padded(rows: list[list[int]], width: int) -> tuple[Tensor, Tensor]:
    source = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return source, source != 0


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [h.token_ids for h in one] == [h.token_ids for h in other]
        for name in ("log_prob", "score"):
            mine, expected = ([getattr(h, name) for h in hypotheses] for hypotheses in (one, other))
            assert mine == pytest.approx(expected, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("decoder", options("decoder"))
def test_a_translation_depends_neither_on_the_batch_nor_on_its_order(decoder: str) -> None:
    model, search = peaked(decoder=decoder), groups(3, 2, STRONG, *SHORT)
    together = search(model, *padded(SOURCES, 7), TARGET)
    assert len({len(best.token_ids) for best, *_ in together}) > 1
    assert max(map(len, together)) > 4
    for size in (1, 2):
        parts = [SOURCES[first : first + size] for first in range(0, 7, size)]
        alone = [search(model, *padded(part, max(map(len, part))), TARGET) for part in parts]
        assert_same([hypotheses for part in alone for hypotheses in part], together)
    assert_same(search(model, *padded(SOURCES[::-1], 11), TARGET)[::-1], together)


@pytest.mark.parametrize("decoder", options("decoder"))
def test_the_log_prob_is_that_of_forced_scoring(decoder: str) -> None:
    model, search = peaked(decoder=decoder), groups(3, 2, STRONG, ".no_repeat_ngram=2", *SHORT)
    source, mask = padded(SOURCES[:4], 5)
    for row, hypotheses in enumerate(search(model, source, mask, TARGET, prefixes=[[5], [], [7, 4], []])):
        assert len(hypotheses) > 3
        assert sorted((h.score for h in hypotheses), reverse=True) == [h.score for h in hypotheses]
        assert len({tuple(h.token_ids) for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS, *hypothesis.token_ids]])
            hidden = model(source[row : row + 1], mask[row : row + 1], target).hidden
            tokens = torch.tensor([*hypothesis.token_ids, EOS])
            expected = model.logits(hidden)[0].log_softmax(-1).gather(-1, tokens[:, None]).sum()
            assert hypothesis.log_prob == pytest.approx(expected.item(), abs=1e-9)


def test_more_diversity_gives_translations_that_share_less() -> None:
    model = peaked("transformer", "transformer")

    def different(diversity: float) -> int:
        hypotheses = groups(5, 1, diversity, *SHORT)(model, *padded(SOURCES, 7), TARGET)
        return sum(len({(t, token) for h in row for t, token in enumerate(h.token_ids)}) for row in hypotheses)

    assert different(0) < different(STRONG / 5) < different(STRONG)


def test_all_groups_are_read_in_one_step_and_a_sentence_leaves_when_all_are_settled() -> None:
    # sentence n is translated as n times A by the first group; the second group puts a B before them
    def log_probs(sentences: Tensor, tokens: Tensor) -> Tensor:
        rows = torch.full((len(tokens), 7), -99.0)
        if not tokens.shape[1]:
            rows[:, B] = -1.0
            rows[sentences == 0, D] = -0.5  # which the first group continues beside its end
        rows[torch.arange(len(tokens)), torch.where(sentences <= (tokens == A).sum(-1), END, A)] = -0.001
        return rows

    model = Scripted(log_probs)
    hypotheses = translated(model, groups(2, 1, 2.0), sentences=3)
    assert [[h.token_ids for h in row] for row in hypotheses] == [[[], [B]], [[A], [B, A]], [[A, A], [B, A, A]]]
    assert model.sizes == [(3, 6), (3, 6), (2, 4), (1, 2)]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"num_groups": 2}, r"^search.num_groups=2 must be at least 1 and divide search.beam_size=5; use "),
        ({"num_groups": 0}, r"^search.num_groups=0 must be at least 1 .*use search.num_groups=5$"),
        ({"diversity": -0.5}, r"^search.diversity=-0.5 must be a number of nats, 0 or more; use 0.5$"),
        ({"diversity": math.inf}, r"^search.diversity=inf must be a number of nats"),
        ({"num_best": 6}, r"^search.num_best=6 must be .*; use search.num_best=5 or a larger beam$"),
        ({"beam_size": 0}, r"^search.beam_size=0 must be at least 1; use 5$"),
        ({"patience": 0}, r"^search.patience=0 must be greater than 0; use 1.0, or null for no limit$"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: dict[str, Any], sentence: str) -> None:
    numbers = {"beam_size": 5, "num_groups": 5, "diversity": 0.5, "num_best": 5, "patience": None} | overrides
    with pytest.raises(UserError, match=sentence):
        DiverseBeamSearch(**numbers, length_penalty=MeanPenalty(), no_repeat_ngram=0, limits=limits(0, 4))
