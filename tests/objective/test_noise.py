"""The noise of objective=denoising and objective=infilling, against plain definitions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from seq2seq_attn.objective.denoising import Denoising, segments
from seq2seq_attn.objective.infilling import Infilling, permuted
from seq2seq_attn.objective.objective import Noise, NoiseVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

SENTINELS = [900, 901, 902, 903, 904]
VOCABULARY = NoiseVocabulary(SENTINELS, frozenset({7}))
LENGTHS = [1, 2, 3, 5, 13, 29, 61, 199]


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def restored(source: list[int], target: list[int]) -> list[int]:
    """Return the source with the spans of the target in place of its sentinels."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[token] = []
        else:
            spans[[*spans][-1]].append(token)
    return [token for read in source for token in spans.get(read, [read])]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("seed", range(5))
def test_the_target_restores_the_source_and_its_spans_are_as_many_and_as_long_as_the_paper_says(
    length: int, seed: int
) -> None:
    noise, text = Denoising(noise_density=0.15, mean_span_length=3.0, num_sentinels=5), list(range(length))
    source, target = noise(text, VOCABULARY, draws(seed))
    assert restored(source, target) == text
    lost = [token for token in target if token not in SENTINELS]
    assert len(lost) == max(1, round(0.15 * length))
    marks = [token for token in source if token in SENTINELS]
    assert len(marks) == max(1, min(round(len(lost) / 3), 4))  # the last sentinel ends the target
    assert marks == SENTINELS[: len(marks)]
    assert [token for token in target if token in SENTINELS] == SENTINELS[: len(marks) + 1]
    assert target[-1] == SENTINELS[len(marks)]


def test_every_choice_of_spans_is_equally_likely_and_the_example_of_the_docstring_is_one() -> None:
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    noise, generator = Denoising(noise_density=0.3, mean_span_length=1.5, num_sentinels=3), draws()
    found: Counter[str] = Counter()
    for _ in range(6000):
        pair = noise(list(range(10)), VOCABULARY, generator)
        sides = [" ".join(f"<{token - 900}>" if token >= 900 else text[token] for token in side) for side in pair]
        found[" | ".join(sides)] += 1
    # two spans, of 1 + 2 or 2 + 1 tokens, among 7 kept ones: two of the 8 places before, between and after these
    assert len(found) == 2 * 28
    assert min(found.values()) > 60
    assert "Thank you <0> me to your party <1> week | <0> for inviting <1> last <2>" in found


def test_every_composition_of_a_length_is_equally_likely() -> None:
    generator = draws()
    found = Counter(tuple(segments(5, 3, generator).tolist()) for _ in range(3000))
    assert len(found) == 6
    assert all(sum(one) == 5 and min(one) >= 1 for one in found)
    assert min(found.values()) > 400


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("seed", range(5))
def test_infilling_leaves_the_kept_tokens_in_order_and_one_mask_for_each_span(length: int, seed: int) -> None:
    noise = Infilling(noise_density=0.3, mean_span_length=3.0, permute_sentences=False)
    text = list(range(length))
    source, target = noise(text, VOCABULARY, draws(seed))
    assert target == text
    kept = [token for token in source if token != 900]
    assert kept == sorted(kept)
    assert len(kept) == length - round(0.3 * length)
    assert not any(a == b == 900 for a, b in pairwise(source))


def test_lengths_of_infilled_spans_are_poisson_distributed() -> None:
    noise, generator = Infilling(noise_density=0.3, mean_span_length=3.0, permute_sentences=False), draws()
    found = [length for _ in range(300) for length in noise._lengths(100, generator)[:-1]]  # the last is cut
    assert np.mean(found) == pytest.approx(3.0, abs=0.15)
    assert np.mean(np.array(found) == 0) == pytest.approx(np.exp(-3.0), abs=0.02)


def test_sentences_are_shuffled_whole() -> None:
    text = [1, 2, 7, 3, 7, 4, 5, 6]
    found = {tuple(permuted(text, frozenset({7}), draws(seed))) for seed in range(60)}
    assert found == {
        tuple(a + b + c)
        for first in ([1, 2, 7], [3, 7], [4, 5, 6])
        for second in ([1, 2, 7], [3, 7], [4, 5, 6])
        for third in ([1, 2, 7], [3, 7], [4, 5, 6])
        for a, b, c in [(first, second, third)]
        if len({tuple(a), tuple(b), tuple(c)}) == 3
    }
    source, target = Infilling(noise_density=0.1, mean_span_length=3.0, permute_sentences=True)(
        text, VOCABULARY, draws(3)
    )
    assert target == text
    assert 900 in source


def test_noise_that_makes_more_than_the_model_has_positions_is_drawn_again_or_cut() -> None:
    tokenizer = SentencePieceTokenizer("char", 50, True, 0.0, None, num_sentinels=2)
    tokenizer.train(["the cat"], ["the cat"])
    text = list(range(30))
    noise = Noise(Infilling(noise_density=0.3, mean_span_length=0.7, permute_sentences=False), tokenizer, 1)
    free = [noise(row, text, 0) for row in range(50)]
    kept = [noise(row, text, 0, 31) for row in range(50)]
    assert max(len(source) for source, _ in free) > 30
    assert max(len(source) for source, _ in kept) <= 30
    fits = [len(source) < 31 for source, _ in free]
    assert any(fits)
    assert all(one == other for one, other, fit in zip(free, kept, fits, strict=True) if fit)
    assert all(target == text for _, target in kept)
    assert [len(side) for side in noise(0, text, 0, 6)] == [5, 5]


def test_a_mask_of_one_span_is_equally_likely_everywhere() -> None:
    noise, generator = Infilling(noise_density=0.2, mean_span_length=50.0, permute_sentences=False), draws()
    found = Counter(noise([0, 1, 2, 3, 4], VOCABULARY, generator)[0].index(900) for _ in range(3000))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert min(found.values()) > 500


def test_sentences_of_a_text_are_shuffled_if_that_is_asked_for() -> None:
    text, vocabulary = [1, 2, 7, 3, 8, 4, 5, 6], NoiseVocabulary(SENTINELS, frozenset({7, 8}))
    in_order = {}
    for permutes in (False, True):
        noise = Infilling(noise_density=0.1, mean_span_length=3.0, permute_sentences=permutes)
        sources = [[token for token in noise(text, vocabulary, draws(seed))[0] if token < 900] for seed in range(60)]
        in_order[permutes] = sum(source == [token for token in text if token in source] for source in sources)
    assert in_order[False] == 60
    assert 0 < in_order[True] < 30


def test_tokens_that_end_a_sentence_are_those_of_the_tokenizer() -> None:
    tokenizer = SentencePieceTokenizer("char", 50, True, 0.0, None, num_sentinels=1)
    tokenizer.train(["a b.", "c! 好。 d, e?"], ["a: b"])
    noise = Infilling(noise_density=0.3, mean_span_length=3.0, permute_sentences=True)
    ends = noise.vocabulary(tokenizer).sentence_ends
    assert {tokenizer.target_model.id_to_piece(token)[-1] for token in ends} == {".", "!", "。", "?"}


def test_a_validation_has_noise_of_its_own() -> None:
    tokenizer = SentencePieceTokenizer("char", 50, True, 0.0, None, num_sentinels=2)
    tokenizer.train(["the cat"], ["the cat"])
    noise = Noise(Infilling(noise_density=0.3, mean_span_length=2.0, permute_sentences=False), tokenizer, 1)
    text = list(range(30))
    same = [noise(row, text, None) == noise(row, text, 0) for row in range(50)]
    assert sum(same) < 5
    assert all(noise(row, text, None) == noise(row, text, None) for row in range(50))


def test_noise_that_does_not_fit_is_drawn_again_before_it_is_cut() -> None:
    tokenizer = SentencePieceTokenizer("char", 50, True, 0.0, None, num_sentinels=2)
    tokenizer.train(["the cat"], ["the cat"])
    noise = Noise(Infilling(noise_density=0.3, mean_span_length=0.7, permute_sentences=False), tokenizer, 1)
    text = list(range(100, 130))
    long = [row for row in range(50) if len(noise(row, text, 0)[0]) > 30]
    assert long
    whole = Counter(len([token for token in noise(row, text, 0, 31)[0] if token >= 100]) for row in long)
    assert whole.most_common(1)[0][0] == 21  # of 30 tokens, 9 are lost; a cut source has fewer
    assert whole[21] > len(long) // 2
