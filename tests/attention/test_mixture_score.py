"""The mixture of scores: its shares, its facts, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError

SIZES = {"query_dim": 8, "key_dim": 6, "value_dim": 4}
THREE = (
    "attention/score=mixture",
    "attention/score@attention.score.scores.first=synthesizer_factorized_dense",
    "attention/score@attention.score.scores.second=synthesizer_random",
    "attention/score@attention.score.scores.third=additive",
)


def mixture(preset: str, *overrides: str, heads: int = 2) -> Any:
    return attention_of(preset, f"attention.num_heads={heads}", *overrides, **SIZES).score


def scores(score: Any, query: Tensor, keys: Tensor) -> Tensor:
    positions = QueryKeyPositions.dense(
        start=0,
        target=query.shape[1],
        source=keys.shape[1],
        lengths=lambda: torch.tensor([keys.shape[1]]),
        causal=False,
        device=query.device,
    )
    return score(score.prepare_query(query), score.prepare_keys(keys), positions)


def content() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 5, 8), torch.randn(3, 7, 6)


@pytest.mark.parametrize(
    "preset", ["synthesizer_random_vanilla", "synthesizer_dense_vanilla", "synthesizer_random_dense"]
)
def test_a_new_mixture_is_the_mean_of_its_scores(preset: str) -> None:
    score, (query, keys) = mixture(preset), content()
    first, second = (scores(child, query, keys) for child in score.scores.values())
    torch.testing.assert_close(scores(score, query, keys), (first + second) / 2)


def test_shares_are_a_softmax_for_each_head() -> None:
    score, (query, keys) = mixture("synthesizer_random_vanilla"), content()
    random, vanilla = (scores(score.scores[name], query, keys) for name in ("random", "vanilla"))
    score.logits.data = torch.tensor([[math.log(3.0), 50.0], [0.0, -50.0]])  # (scores, heads)
    found = scores(score, query, keys)
    torch.testing.assert_close(found[:, 0], 0.75 * random[:, 0] + 0.25 * vanilla[:, 0])
    torch.testing.assert_close(found[:, 1], random[:, 1].expand(3, -1, -1))


def test_each_score_gets_its_own_parts_of_query_and_keys() -> None:
    score, (query, keys) = mixture("multihead", *THREE), content()
    assert list(score.scores) == ["first", "second", "third"]
    assert (score.query_parts, score.key_parts) == (3, 1)
    assert len(score.prepare_query(query)) == 3
    assert len(score.prepare_keys(keys)) == 1
    score.logits.data = torch.randn(3, 2)
    expected = torch.zeros(3, 2, 5, 7)
    for share, child in zip(score.logits.softmax(0), score.scores.values(), strict=True):
        expected = expected + share[:, None, None] * scores(child, query, keys)
    torch.testing.assert_close(scores(score, query, keys), expected)


def test_its_facts_are_those_of_its_scores() -> None:
    score = mixture("multihead", *THREE, "attention.score.scores.second.max_length=9")
    assert score.max_length == 9
    assert score.reads_query
    assert not score.inner_product
    blind = mixture(
        "synthesizer_random_dense", "attention/score@attention.score.scores.dense=synthesizer_factorized_random"
    )
    assert not blind.reads_query
    assert (blind.query_parts, blind.key_parts) == (0, 0)
    free = mixture("multihead", "attention/score=mixture", "attention/score@attention.score.scores.fourth=additive")
    assert free.max_length is None


def test_every_share_and_every_score_gets_a_gradient() -> None:
    attention = attention_of("multihead", "attention.num_heads=2", *THREE, **SIZES)
    query, keys = content()
    attention(query, attention.prepare(keys, torch.randn(3, 7, 4))).context.square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_options_of_the_attention_reach_the_scores_that_take_them() -> None:
    score = mixture("synthesizer_dense_vanilla", "attention.qk_scale=3.0", "attention.qkv_bias=true")
    assert score.scores["vanilla"].scale == 3.0
    assert score.scores["vanilla"].project_key.bias is not None


def test_a_sentence_beyond_the_positions_of_one_score_is_refused() -> None:
    score = mixture("synthesizer_random_vanilla", "attention.score.scores.random.max_length=6")
    query, keys = content()
    scores(score, query, keys[:, :6])
    with pytest.raises(UserError, match=r"SynthesizerRandomScore has scores for 6 positions, but a sentence has 7"):
        scores(score, query, keys)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["attention/score=mixture_random_dense", "attention/score@attention.score.scores.third=fixed"],
            "a mixture adds scores, but FixedScore hides positions; "
            "take another score than attention.score.scores.third, or use it alone",
        ),
        (
            ["attention/score=mixture"],
            "a mixture needs scores; add one with attention/score@attention.score.scores.first=SCORE",
        ),
        (
            ["attention/score=mixture_random_dense", "attention.qk_scale=0.5"],
            "SynthesizerRandomScore or SynthesizerDenseScore takes no attention.qk_scale=0.5; leave it null, or use "
            "attention/score=scaled_dot",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused_in_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        mixture("multihead", *overrides)
    assert str(refused.value) == sentence
