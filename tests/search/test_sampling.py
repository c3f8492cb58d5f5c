"""Sampling from a model with known probabilities, and the same sentences in other batches."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scripted
import torch
from configs import built, composed, options
from omegaconf import OmegaConf
from search.test_greedy import BOS, EOS, MASK, SOURCE, TARGET, peaked
from torch import Tensor

from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel, Step
from seq2seq_attn.search.sampling import SamplingSearch, only_likeliest, uniform
from seq2seq_attn.search.search import TargetVocabulary

pytestmark = pytest.mark.usefixtures("double")

# probabilities of the next token after a prefix: begin token, end token, 2, 3, 4
FIRST = [0.0, 0.1, 0.2, 0.3, 0.4]
LATER = {2: [0.0, 0.5, 0.5, 0.0, 0.0], 3: [0.0, 0.25, 0.0, 0.75, 0.0], 4: [0.0, 1.0, 0.0, 0.0, 0.0]}
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 5: 20.52}  # quantiles at 0.999, by degrees of freedom


@dataclass(frozen=True)
class Said(DecoderState):
    last: Tensor

    def branch(self, rows: Tensor) -> Said:
        return Said(self.last[rows])

    def keep(self, sentences: Tensor) -> Said:
        return self


class Scripted(DecodingModel):
    """A model in which the probability of a token depends on the token before it."""

    max_length = None

    def encode(self, source: Tensor, mask: Tensor) -> Said:
        return Said(torch.zeros(len(source)))

    def step(self, last: Tensor, state: Any, *, need_weights: bool = False) -> Step:
        rows = [LATER.get(token, FIRST) for token in last.tolist()]
        return Step(torch.tensor(rows).log(), Said(last), None)


def search(limits: dict[str, int] | None = None, **settings: Any) -> SamplingSearch:
    node = OmegaConf.to_container(composed("search=sampling").search)
    assert isinstance(node, dict)
    settings["limits"] = built(OmegaConf.create(node.pop("limits") | (limits or {})))
    del node["_target_"]
    return SamplingSearch(**(node | settings))


def samples(settings: dict[str, Any]) -> list[tuple[int, ...]]:
    found = search(limits={"max_length": 2}, num_samples=2000, **settings)
    target = TargetVocabulary(0, 1, (0,), list)
    (drawn,) = found(Scripted(), torch.tensor([[4, 1]]), torch.ones(1, 2, dtype=torch.bool), target)
    return [tuple(sample.token_ids) for sample in drawn]


def chi_square(drawn: list[Any], expected: dict[Any, float]) -> float:
    counts = Counter(drawn)
    assert counts.keys() <= expected.keys()
    return sum((counts[k] - len(drawn) * p) ** 2 / (len(drawn) * p) for k, p in expected.items())


def test_sentences_are_drawn_as_often_as_they_are_probable() -> None:
    expected = {(): 0.1, (2,): 0.1, (2, 2): 0.1, (3,): 0.075, (3, 3): 0.225, (4,): 0.4}
    assert chi_square(samples({}), expected) < CHI_SQUARE[5]


@pytest.mark.parametrize(
    ("settings", "masses"),
    [
        ({"temperature": 0.5}, {1: 1, 2: 4, 3: 9, 4: 16}),
        ({"top_k": 2}, {3: 3, 4: 4}),
        ({"top_k": 7}, {1: 1, 2: 2, 3: 3, 4: 4}),
        ({"top_p": 0.65}, {3: 3, 4: 4}),
        ({"top_p": 0.75}, {2: 2, 3: 3, 4: 4}),
        ({"top_k": 3, "top_p": 0.75}, {3: 3, 4: 4}),  # 0.75 of 0.9
        ({"temperature": 0.5, "top_p": 0.8}, {3: 9, 4: 16}),  # of 30
    ],
)
def test_the_first_token_is_drawn_by_what_temperature_and_truncation_leave(
    settings: dict[str, Any], masses: dict[int, int]
) -> None:
    drawn = [(*sample, 1)[0] for sample in samples(settings)]
    expected = {token: mass / sum(masses.values()) for token, mass in masses.items()}
    assert chi_square(drawn, expected) < CHI_SQUARE[len(masses) - 1]


def test_ties_go_to_the_lower_id() -> None:
    mass = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]])
    assert only_likeliest(mass, 3, 1.0).tolist() == [[0.1, 0.3, 0.0, 0.3, 0.0], [0.2, 0.2, 0.2, 0.0, 0.0]]
    assert only_likeliest(mass, 0, 0.7).tolist() == [[0.1, 0.3, 0.0, 0.3, 0.0], [0.2, 0.2, 0.2, 0.2, 0.0]]


def test_a_nucleus_wider_than_the_first_sort_is_found() -> None:
    mass = torch.rand(5, 997) ** torch.tensor([1.0, 3.0, 30.0, 300.0, 1000.0])[:, None]
    for row, found in zip(mass, only_likeliest(mass, 0, 0.9), strict=True):
        falling = row.sort(descending=True).values
        count = int((falling.cumsum(0) < 0.9 * row.sum()).sum()) + 1
        assert found.count_nonzero() == count
        assert found.sum() == pytest.approx(falling[:count].sum().item())
    assert sorted(only_likeliest(mass, 0, 0.9).count_nonzero(dim=-1).ge(64).tolist()) == [False] * 2 + [True] * 3


def test_a_nucleus_that_has_exactly_the_share_is_no_wider() -> None:
    mass = torch.tensor([[0.25, 0.5, 0.125, 0.125]])
    assert only_likeliest(mass, 0, 0.5).tolist() == [[0.0, 0.5, 0.0, 0.0]]
    assert only_likeliest(mass, 0, 0.75).tolist() == [[0.25, 0.5, 0.0, 0.0]]


def test_a_forbidden_token_is_never_drawn() -> None:
    log_probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).log().expand(3, 5)
    chance = torch.tensor([1.0, 0.5, 2.0**-53])
    assert search()._draw(log_probs, chance).tolist() == [[3], [1], [1]]


def test_numbers_depend_on_seed_tokens_sample_and_step_alone() -> None:
    seven = uniform(1, [4, 5], 2, 7)
    assert uniform(1, [4, 5], 2, 3).tolist() == seven[:3].tolist()
    others = [uniform(2, [4, 5], 2, 7), uniform(1, [45], 2, 7), uniform(1, [4, 5], 3, 7)]
    for other in others:
        assert not np.isin(other, seven).any()


def test_no_uniform_number_is_zero_which_could_draw_an_impossible_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.random, "Generator", lambda bits: SimpleNamespace(random=np.zeros))
    assert uniform(1, [4, 5], 2, 3).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-9}, {"top_p": 1e-9}])
def test_one_token_to_draw_from_is_greedy_search(settings: dict[str, float]) -> None:
    model = peaked()
    greedy = built(composed().search)(model, SOURCE, MASK, TARGET)
    drawn = search(num_samples=2, **settings)(model, SOURCE, MASK, TARGET)
    for (best,), (one, other) in zip(greedy, drawn, strict=True):
        assert one.token_ids == other.token_ids == best.token_ids
        assert one.log_prob == pytest.approx(best.log_prob, abs=1e-9)


@pytest.mark.parametrize("decoder", options("decoder"))
def test_a_batch_has_the_samples_of_its_sentences_alone(decoder: str) -> None:
    model = peaked(decoder=decoder)
    sampling = search(limits={"max_extra_length": 1}, num_samples=3, temperature=10.0, top_p=0.9)
    together = sampling(model, SOURCE, MASK, TARGET)
    turned = sampling(model, SOURCE.flip(0), MASK.flip(0), TARGET)[::-1]
    assert len({len(sample.token_ids) for drawn in together for sample in drawn}) > 2
    for row, length in enumerate(MASK.sum(-1).tolist()):
        (alone,) = sampling(model, SOURCE[row : row + 1, :length], MASK[row : row + 1, :length], TARGET)
        for other in (together[row], turned[row]):
            assert [sample.token_ids for sample in other] == [sample.token_ids for sample in alone]
            assert [s.log_prob for s in other] == pytest.approx([s.log_prob for s in alone], abs=1e-9)


def test_finished_samples_are_not_computed_and_change_no_draw() -> None:
    table = torch.randn(3, 400, 7).log_softmax(-1)
    table[:, :, scripted.END] += torch.tensor([0.0, 1.0, 2.0])[:, None]  # sentences of different lengths
    model = scripted.Scripted(scripted.by_table(table, 5))
    sampling = search(limits={"max_length": 3}, num_samples=4)
    found = scripted.translated(model, sampling, sentences=3)
    lengths = torch.zeros(3, 4, dtype=torch.long)
    for sentence, drawn in enumerate(found):
        expected = []
        for number in range(4):
            tokens: list[int] = []
            total = 0.0
            for step, chance in enumerate(uniform(1, [sentence] * 3, number, 4)):
                row = table[sentence, scripted.prefix_number(torch.tensor([tokens], dtype=torch.long), 5)]
                row[:, scripted.BOS] = -torch.inf
                if step == 3:
                    row[:, scripted.A :] = -torch.inf
                token = int(sampling._draw(row.clone(), torch.tensor([chance])))
                total += row[0, token].item()
                lengths[sentence, number] = step + 1
                if token == scripted.END:
                    break
                tokens.append(token)
            expected.append((tokens, total, total))
        assert [tuple(sample) for sample in drawn] == sorted(expected, key=lambda sample: -sample[1])
    unfinished = [lengths > step for step in range(int(lengths.max()))]
    sizes = [(int(one.any(-1).sum()), int(one.any(-1).sum() * one.sum(-1).max())) for one in unfinished]
    assert model.sizes == sizes
    assert any(0 < rows < 4 * sentences for sentences, rows in sizes)


def test_the_log_probability_is_the_models_and_ranks() -> None:
    model = peaked()
    for row, drawn in enumerate(search(num_samples=5, temperature=3.0, top_k=7)(model, SOURCE, MASK, TARGET)):
        assert [sample.score for sample in drawn] == sorted((s.log_prob for s in drawn), reverse=True)
        for sample in drawn:
            target = torch.tensor([[BOS, *sample.token_ids]])
            hidden = model(SOURCE[row : row + 1], MASK[row : row + 1], target).hidden
            tokens = torch.tensor([[*sample.token_ids, EOS]])
            forced = model.logits(hidden).log_softmax(-1).gather(-1, tokens[..., None]).sum()
            assert sample.log_prob == pytest.approx(forced.item(), abs=1e-9)


def test_more_samples_extend_fewer_and_another_seed_gives_others() -> None:
    model = peaked()

    def drawn(**settings: int) -> list[Counter[tuple[int, ...]]]:
        found = search(**settings)(model, SOURCE, MASK, TARGET)
        return [Counter(tuple(sample.token_ids) for sample in of_sentence) for of_sentence in found]

    few, many, others = drawn(num_samples=2), drawn(num_samples=5), drawn(num_samples=2, seed=2)
    assert few == drawn(num_samples=2)
    assert all(less <= more for less, more in zip(few, many, strict=True))
    assert few != others


def test_samples_keep_prefix_and_lengths() -> None:
    sampling = search(limits={"max_length": 4, "min_length": 3}, num_samples=5)
    prefixes = [[7], [], [9, 9], [5]]
    found = sampling(peaked(), SOURCE, MASK, TARGET, prefixes=prefixes)
    for drawn, prefix in zip(found, prefixes, strict=True):
        for sample in drawn:
            assert sample.token_ids[: len(prefix)] == prefix
            assert len(sample.token_ids) in (3, 4)
            assert not {0, 1, BOS, EOS} & set(sample.token_ids)


def test_a_draw_after_a_forced_prefix_depends_on_the_source() -> None:
    source, target = torch.tensor([[4, 1], [3, 1]]), TargetVocabulary(0, 1, (0,), list)
    mask = torch.ones(2, 2, dtype=torch.bool)
    one, other = search(num_samples=20)(Scripted(), source, mask, target, prefixes=[[2], [2]])
    assert [sample.token_ids for sample in one] != [sample.token_ids for sample in other]


def test_a_sample_ends_where_the_model_returns_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LATER, 4, [math.nan] * 5)
    assert {sample for sample in samples({}) if sample[:1] == (4,)} == {(4,)}
    assert {sample for sample in samples({"top_k": 3}) if sample[:1] == (4,)} == {(4,)}


def test_the_mass_of_a_large_vocabulary_is_summed_in_float64() -> None:
    log_probs = torch.zeros(1, 100_001, dtype=torch.float32)
    log_probs[0, 0] = 20.0  # then float32 would lose all others
    uniforms = torch.linspace(0.9998, 0.99999, 40, dtype=torch.float64)
    expected = uniforms * (math.exp(20.0) + 100_000) - math.exp(20.0)
    drawn = search()._draw(log_probs.expand(40, -1), uniforms)[:, 0]
    assert (drawn - expected).abs().max() < 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_samples": 0}, r"^search.num_samples=0 must be at least 1; use 10$"),
        ({"temperature": 0.0}, r"^search.temperature=0.0 must be greater than 0; use search=greedy for the likel"),
        ({"temperature": 1e-50}, r"^search.temperature=1e-50 must be from 1e-30 to 1e\+30; use search=greedy for"),
        ({"temperature": 1e40}, r"^search.temperature=1e\+40 must be from 1e-30 to 1e\+30; use search=greedy for"),
        ({"top_k": -1}, r"^search.top_k=-1 and top_p=1.0 must be top_k >= 0 and 0 < top_p <= 1; use 0 and 1.0"),
        ({"top_p": 0.0}, r"^search.top_k=0 and top_p=0.0 must be top_k >= 0 and 0 < top_p <= 1; use 0 and 1.0"),
    ],
)
def test_options_out_of_range_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        search(**settings)
