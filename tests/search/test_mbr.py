"""Minimum Bayes risk decoding on candidates with utilities computed by hand."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, final

import pytest
import sacrebleu
import torch
from configs import built, composed
from hydra.errors import InstantiationException
from search.test_greedy import BOS, EOS, MASK, SOURCE, peaked

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.mbr import MBRSearch, chrf_statistics, pairwise
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary

SENTENCES = ["The red house.", "The house is red.", "A red house", "", "Où est-elle ?", "house"]


@final
class Given(Search):
    """A search that returns given candidates and log-probabilities."""

    def __init__(self, candidates: dict[str, float]) -> None:
        self.found = [Hypothesis([n], log_prob, log_prob) for n, log_prob in enumerate(candidates.values())]

    @property
    def most_hypotheses(self) -> int:
        return 9

    def __call__(self, *_: Any, prefixes: Any = None) -> list[list[Hypothesis]]:
        return [self.found]


def chosen(candidates: dict[str, float], **settings: Any) -> list[tuple[str, float, float]]:
    """Return text, score and log-probability of each result; a suffix after `#` distinguishes equal texts."""
    texts = [name.partition("#")[0] for name in candidates]
    target = TargetVocabulary(BOS, EOS, (), lambda rows: [texts[n] for (n,) in rows])
    search = MBRSearch(candidates=Given(candidates), **{"utility": "chrf", "by_probability": False, **settings})
    (found,) = search(peaked(), SOURCE, MASK, target)
    return [(texts[best.token_ids[0]], best.score, best.log_prob) for best in found]


def test_expected_chrf_by_hand() -> None:
    # ab and ac share one of two letters and no pair of letters: chrF 25; dd shares nothing with either
    found = chosen({"dd": -1.0, "ab#1": -2.0, "ac": -3.0, "ab#2": -4.0})
    assert [text for text, _, _ in found] == ["ab", "ac", "dd"]
    assert [score for _, score, _ in found] == pytest.approx([(2 * 100 + 25) / 4, (100 + 2 * 25) / 4, 25.0])
    assert [log_prob for _, _, log_prob in found] == [-2.0, -3.0, -1.0]


def test_expected_bleu_by_hand() -> None:
    # a b and a c share one of two words and no pair, which is smoothed to a half: sqrt(1/2 * 1/2)
    found = chosen({"a b": -1.0, "a c": -2.0, "a c#2": -3.0}, utility="bleu")
    assert [text for text, _, _ in found] == ["a c", "a b"]
    assert [score for _, score, _ in found] == pytest.approx([(50 + 200) / 3, (100 + 2 * 50) / 3])


@pytest.mark.parametrize(
    ("texts", "tokenize"),
    [
        (["我们明天去公园里玩。", "我们明天去公园玩。", "他们在看书。"], "zh"),
        (["พรุ่งนี้เราจะไปสวน", "พรุ่งนี้เราไปสวน", "เขาอ่านหนังสือ"], "char"),
        (["The red house.", "The red old house.", "北京"], "13a"),
    ],
)
def test_bleu_of_candidates_without_spaces_is_of_characters(texts: list[str], tokenize: str) -> None:
    scorer = sacrebleu.BLEU(effective_order=True, tokenize=tokenize)
    expected = {
        one: (100 + sum(scorer.sentence_score(one, [other]).score for other in texts if other != one)) / 3
        for one in texts
    }
    assert {text: score for text, score, _ in chosen(dict.fromkeys(texts, -1.0), utility="bleu")} == pytest.approx(
        expected
    )
    assert expected[texts[0]] > 40


def test_chrf_of_candidates_without_spaces_is_that_of_sacrebleu() -> None:
    one, other = "我们明天去公园里玩。", "我们明天去公园玩。"
    expected = [(100 + sacrebleu.sentence_chrf(*pair).score) / 2 for pair in ((one, [other]), (other, [one]))]
    found = {text: score for text, score, _ in chosen({one: -1.0, other: -2.0})}
    assert [found[one], found[other]] == pytest.approx(expected)


def test_references_can_be_weighted_by_probability() -> None:
    found = chosen({"ab": math.log(0.3), "ac": math.log(0.1), "dd": math.log(0.1)}, by_probability=True)
    assert [text for text, _, _ in found] == ["ab", "ac", "dd"]
    assert [score for _, score, _ in found] == pytest.approx([60 + 5, 20 + 15, 20])
    (first, *_), even = found, chosen({"ab": math.log(0.3), "ac": math.log(0.1), "dd": math.log(0.1)})
    assert even[0][1] == pytest.approx(125 / 3)
    assert even[0][0] == first[0]


@pytest.mark.parametrize("text", ["Only this one.", ""])
def test_one_candidate_is_chosen(text: str) -> None:
    assert chosen({text: -7.0}) == [(text, 100.0, -7.0)]


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize("text", SENTENCES)
def test_the_most_frequent_text_is_chosen(text: str, utility: str) -> None:
    others = {f"{sentence}#other": -1.0 for sentence in SENTENCES if sentence != text}
    found = chosen(others | {f"{text}#{n}": -9.0 for n in range(7)}, utility=utility)
    assert found[0][0] == text
    assert len(found) == len(SENTENCES)


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_utilities_are_those_of_sacrebleu_and_equal_texts_are_never_scored(
    utility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = MBRSearch(candidates=Given({}), utility=utility, by_probability=False).scorer
    public = {"chrf": sacrebleu.sentence_chrf, "bleu": sacrebleu.sentence_bleu}[utility]
    found = pairwise(scorer, SENTENCES).tolist()
    for row, hypothesis in enumerate(SENTENCES):
        for column, reference in enumerate(SENTENCES):
            if row != column:
                assert found[row][column] == public(hypothesis, [reference]).score
            else:
                assert found[row][column] == 100.0
    assert len({value for row in found for value in row}) > 7
    calls = []
    score = scorer._compute_score_from_stats
    monkeypatch.setattr(scorer, "_compute_score_from_stats", lambda *a: calls.append(a) or score(*a))
    pairwise(scorer, ["a", "b", "c"])
    assert len(calls) == 6
    prepared, extract = [], scorer._extract_reference_info
    monkeypatch.setattr(scorer, "_extract_reference_info", lambda texts: prepared.append(texts) or extract(texts))
    if utility == "chrf":
        monkeypatch.setattr(scorer, "_compute_segment_statistics", None)  # which extracts the n-grams of hypotheses
        monkeypatch.setattr(scorer, "_get_match_statistics", None)  # which counts those of a pair and of its reverse
    pairwise(scorer, ["a", "b", "c"])
    assert len(prepared) == 3


def test_chrf_statistics_by_hand() -> None:
    letters = [Counter("abca"), Counter("cab"), Counter()]
    pairs = [Counter(["ab", "bc", "ca"]), Counter(["ca", "ab"]), Counter[str]()]
    found = list(chrf_statistics(list(zip(letters, pairs, strict=True))))
    assert found == [
        (0, 1, [4, 3, 3, 3, 2, 2]),
        (1, 0, [3, 4, 3, 2, 3, 2]),
        (0, 2, [4, 0, 0, 3, 0, 0]),
        (2, 0, [0, 4, 0, 0, 3, 0]),
        (1, 2, [3, 0, 0, 2, 0, 0]),
        (2, 1, [0, 3, 0, 0, 2, 0]),
    ]


def test_the_private_methods_of_sacrebleu_2_6_that_pairwise_calls_exist() -> None:
    names = (
        "_preprocess_segment",
        "_extract_reference_info",
        "_compute_segment_statistics",
        "_compute_score_from_stats",
    )
    for utility in ("chrf", "bleu"):
        scorer = MBRSearch(candidates=Given({}), utility=utility, by_probability=False).scorer
        missing = [name for name in names if not hasattr(scorer, name)]
        assert not missing, f"sacreBLEU {sacrebleu.__version__} lacks {missing}, seen in 2.6"


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("candidates", ["samples", "diverse_beam"])
def test_a_batch_is_translated_as_its_sentences_alone(candidates: str) -> None:
    options = ["search=mbr", f"search@search.candidates={candidates}"]
    options += ["search.candidates.num_samples=7"] if candidates == "samples" else []
    search, model = built(composed(*options).search), peaked()
    target = TargetVocabulary(BOS, EOS, (0, 1, 2), lambda rows: [" ".join(map(str, row)) for row in rows])
    together = search(model, SOURCE, MASK, target)
    assert torch.tensor([len(found) for found in together]).max() == (5 if candidates == "diverse_beam" else 7)
    for row, length in enumerate(MASK.sum(-1).tolist()):
        (alone,) = search(model, SOURCE[row : row + 1, :length], MASK[row : row + 1, :length], target)
        assert [best.token_ids for best in alone] == [best.token_ids for best in together[row]]
        assert [best.score for best in alone] == pytest.approx([best.score for best in together[row]])


@pytest.mark.parametrize("candidates", ["beam", "sampling", "greedy"])
def test_candidates_among_which_there_is_no_choice_are_refused(candidates: str) -> None:
    wanted = composed("search=mbr", f"search@search.candidates={candidates}").search
    with pytest.raises(InstantiationException) as refused:
        built(wanted)
    assert re.match("search.candidates, .*, finds one translation of each sentence", str(refused.value.__cause__))


def test_an_unknown_utility_is_refused() -> None:
    with pytest.raises(UserError, match=r"^search.utility=ter is unknown; choose from: bleu, chrf$"):
        MBRSearch(candidates=Given({}), utility="ter", by_probability=False)
