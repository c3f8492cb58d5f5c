"""Scores of positions: numbers by hand, laws between them, their limits and their size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention.score.synthesizer_factorized_dense import most_square
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError

SYNTHESIZERS = (
    "synthesizer_dense",
    "synthesizer_random",
    "synthesizer_fixed_random",
    "synthesizer_factorized_dense",
    "synthesizer_factorized_random",
)


def scores(score: Any, query: Tensor, source: int, start: int = 0) -> Tensor:
    positions = QueryKeyPositions.dense(
        start=start,
        target=query.shape[1],
        source=source,
        lengths=lambda: torch.full((len(query),), source),
        causal=False,
        device=query.device,
    )
    return score(score.prepare_query(query), score.prepare_keys(torch.zeros(len(query), source, 1)), positions)


def score_of(name: str, *overrides: str, dim: int = 2, heads: int = 1) -> Any:
    """A score whose hidden layer, if it has one, hands on what is positive in the query."""
    options = (f"attention/score={name}", f"attention.num_heads={heads}", *overrides)
    score = attention_of("multihead", *options, query_dim=dim, key_dim=dim, value_dim=dim).score
    if hasattr(score, "hidden"):
        score.hidden.weight.data = torch.eye(dim // heads).repeat(heads, 1, 1)
    return score


def test_location_score_with_the_identity_is_the_query_itself() -> None:
    attention = attention_of("luong_location", "attention.score.max_length=5", query_dim=5, key_dim=3, value_dim=3)
    attention.score.project.weight.data = torch.eye(5)[None]
    query = torch.tensor([[[1.0, 2, 3, 4, 5], [0, 7, 0, 7, 9]]])
    assert scores(attention.score, query, 5).tolist() == [[query[0].tolist()]]
    weights = attention(query.log1p(), attention.prepare(torch.randn(1, 2, 3)), need_weights=True).weights
    torch.testing.assert_close(weights, torch.tensor([[[[2 / 5, 3 / 5], [1 / 9, 8 / 9]]]]))


def test_dense_synthesizer_by_hand() -> None:
    score = score_of("synthesizer_dense", "attention.score.max_length=3")
    score.hidden.weight.data = torch.tensor([[[1.0, 2], [3, -4]]])
    score.hidden.bias.data = torch.tensor([[10.0, 1]])
    score.score.weight.data = torch.tensor([[[1.0, 1], [2, 0], [0, 5]]])
    score.score.bias.data = torch.tensor([[0.0, 100, 1000]])
    # The first token: relu(1 + 10 + 10, 3 - 20 + 1) = (21, 0); the second: relu(2 + 10, 6 + 1) = (12, 7).
    found = scores(score, torch.tensor([[[1.0, 5], [2, 0]]]), 3)
    assert found.tolist() == [[[[21.0, 142, 1000], [19, 124, 1035]]]]


def test_factorized_dense_synthesizer_by_hand() -> None:
    score = score_of("synthesizer_factorized_dense", "attention.score.max_length=4")
    score.tiled.weight.data = torch.tensor([[[2.0, 0], [3, 0]]])
    score.repeated.weight.data = torch.tensor([[[0.0, 5], [0, 7]]])
    # A = (2, 3) and B = (5, 7): A tiled is 2 3 2 3, B repeated is 5 5 7 7.
    assert scores(score, torch.ones(1, 1, 2), 4).tolist() == [[[[10.0, 15, 14, 21]]]]
    assert scores(score, torch.ones(1, 1, 2), 3).tolist() == [[[[10.0, 15, 14]]]]


def test_factorized_dense_with_a_second_factor_of_one_is_the_dense_synthesizer() -> None:
    dense = score_of("synthesizer_dense", "attention.score.max_length=7", dim=6, heads=2)
    options = ("attention.score.max_length=7", "attention.score.factors=[7,1]")
    factorized = score_of("synthesizer_factorized_dense", *options, dim=6, heads=2)
    factorized.hidden, factorized.tiled = dense.hidden, dense.score
    factorized.repeated.weight.data.zero_()
    factorized.repeated.bias.data.fill_(1.0)
    query = torch.randn(2, 3, 6)
    torch.testing.assert_close(scores(factorized, query, 5), scores(dense, query, 5))


def test_location_is_the_dense_synthesizer_without_its_hidden_layer() -> None:
    dense = score_of("synthesizer_dense", "attention.score.max_length=7", dim=6, heads=2)
    location = score_of("location", "attention.score.max_length=7", dim=6, heads=2)
    location.project.weight = dense.score.weight
    positive = torch.rand(2, 3, 6)  # which relu hands on, as does the identity before it
    torch.testing.assert_close(scores(location, positive, 5), scores(dense, positive, 5))


@pytest.mark.parametrize(
    ("max_length", "factors"), [(256, (16, 16)), (12, (3, 4)), (40, (5, 8)), (7, (1, 7)), (1, (1, 1))]
)
def test_factors_are_the_most_square_ones_unless_given(max_length: int, factors: tuple[int, int]) -> None:
    assert most_square(max_length) == factors
    score = score_of("synthesizer_factorized_dense", f"attention.score.max_length={max_length}")
    assert (score.tiled.weight.shape[1], score.repeated.weight.shape[1]) == factors


@pytest.mark.parametrize("factors", ["[3,5]", "[12]", "[2,2,3]"])
def test_factors_that_do_not_make_up_the_length_are_refused(factors: str) -> None:
    sentence = (
        r"^attention.score.factors=\[[0-9, ]+\] must be two numbers whose product is "
        r"attention.score.max_length=12; take \[3, 4\], or null$"
    )
    with pytest.raises(UserError, match=sentence):
        score_of("synthesizer_factorized_dense", "attention.score.max_length=12", f"attention.score.factors={factors}")


def test_random_synthesizer_reads_its_table_at_the_positions_of_rows_and_columns() -> None:
    score = score_of("synthesizer_random", "attention.score.max_length=5", heads=2)
    score.table.data = torch.arange(50.0).view(2, 5, 5)
    found = scores(score, torch.randn(3, 2, 2), 3, start=2)
    assert found.tolist() == [[[[10.0, 11, 12], [15, 16, 17]], [[35.0, 36, 37], [40, 41, 42]]]]


def test_factorized_random_of_full_rank_is_the_random_synthesizer() -> None:
    random = score_of("synthesizer_random", "attention.score.max_length=5", heads=2)
    options = ("attention.score.max_length=5", "attention.score.rank=5")
    factorized = score_of("synthesizer_factorized_random", *options, heads=2)
    factorized.target.data = random.table.data
    factorized.source.data = torch.eye(5).repeat(2, 1, 1)
    query = torch.randn(1, 3, 2)
    torch.testing.assert_close(scores(factorized, query, 4, start=1), scores(random, query, 4, start=1))


@pytest.mark.parametrize("name", ["synthesizer_random", "synthesizer_fixed_random", "synthesizer_factorized_random"])
def test_a_random_synthesizer_reads_no_content_and_starts_as_spread_as_scaled_dot(name: str) -> None:
    score = score_of(name, heads=2, dim=4)
    assert not score.reads_query
    found = scores(score, torch.randn(3, 200, 4), 200)
    assert found.shape == (1, 2, 200, 200)
    assert abs(found.mean()) < 0.05
    assert 0.85 < found.std() < 1.15


def test_a_fixed_random_synthesizer_is_saved_and_never_trained() -> None:
    attention, other = (attention_of("synthesizer_fixed_random", query_dim=6, key_dim=6, value_dim=6) for _ in range(2))
    before = attention.score.table.clone()
    assert not torch.equal(before, other.score.table)
    assert list(attention.score.parameters()) == []
    optimizer = torch.optim.SGD(attention.parameters(), lr=1.0)
    x = torch.randn(2, 5, 6)
    attention.attend_self(x).context.square().sum().backward()
    optimizer.step()
    assert torch.equal(attention.score.table, before)
    other.load_state_dict(attention.state_dict())
    assert torch.equal(other.attend_self(x).context, attention.attend_self(x).context)


@pytest.mark.parametrize("preset", ["luong_location", *SYNTHESIZERS])
def test_a_sentence_beyond_the_last_position_is_refused(preset: str) -> None:
    attention = attention_of(preset, "attention.score.max_length=4", query_dim=6, key_dim=6, value_dim=6)
    query, keys = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    attention(query, attention.prepare(keys[:, :4]))
    sentence = (
        rf"^{type(attention.score).__name__} has scores for 4 positions, but a sentence has 5; "
        r"set attention.score.max_length=5 or more \(in a mixture attention.score.scores.NAME.max_length, and in "
        r"soft_cap attention.score.score.max_length\)$"
    )
    with pytest.raises(UserError, match=sentence):
        attention(query, attention.prepare(keys))
    with pytest.raises(UserError, match="has scores for 4 positions"):
        attention.attend_self(query[:, :1], past=attention.prepare(keys[:, :4]), causal=True)


@pytest.mark.parametrize("preset", ["luong_location", *SYNTHESIZERS])
def test_only_a_score_with_rows_of_positions_bounds_the_target(preset: str) -> None:
    attention = attention_of(preset, "attention.score.max_length=4", query_dim=6, key_dim=6, value_dim=6)
    query, memory = torch.randn(2, 1, 6), attention.prepare(torch.randn(2, 3, 6))
    if attention.score.reads_query:
        assert attention(query, memory, start=4).context.isfinite().all()
    else:
        with pytest.raises(UserError, match="has scores for 4 positions, but a sentence has 5"):
            attention(query, memory, start=4)


def test_sizes_relate_as_in_the_paper_at_transformer_base() -> None:
    # Tay et al. 2020, WMT: fixed random 61 M, dense 62 M, random and vanilla 67 M; n = 256, two stacks of 6 layers.
    sizes = {"query_dim": 512, "key_dim": 512, "value_dim": 512}
    count = {
        preset: 12 * sum(p.numel() for p in attention_of(preset, **sizes).parameters())
        for preset in ("multihead", "synthesizer_random", "synthesizer_dense", "synthesizer_fixed_random")
    }
    rest = 67e6 - count["multihead"]
    total = {preset: rest + own for preset, own in count.items()}
    assert total["synthesizer_fixed_random"] < total["synthesizer_dense"] < total["synthesizer_random"]
    assert count["synthesizer_random"] == count["multihead"] == 12 * 4 * 512**2
    paper = {"synthesizer_fixed_random": 61e6, "synthesizer_dense": 62e6, "synthesizer_random": 67e6}
    assert all(math.isclose(total[preset], figure, abs_tol=1e6) for preset, figure in paper.items())


def test_factorized_synthesizers_are_smaller_than_those_they_factorize() -> None:
    count = {
        preset: sum(
            p.numel() for p in attention_of(preset, query_dim=512, key_dim=512, value_dim=512).score.parameters()
        )
        for preset in SYNTHESIZERS
    }
    assert count["synthesizer_dense"] == 8 * (64 * 64 + 64 + 64 * 256 + 256)
    assert count["synthesizer_factorized_dense"] == 8 * (64 * 64 + 64 + 2 * (64 * 16 + 16))
    assert count["synthesizer_random"] == 8 * 256**2
    assert count["synthesizer_factorized_random"] == 8 * 2 * 256 * 8
    assert count["synthesizer_fixed_random"] == 0
