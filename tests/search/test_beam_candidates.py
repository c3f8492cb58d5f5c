"""The best continuations, compared with a stable sort of all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.candidates import (
    CHUNK,
    Candidates,
    best_candidates,
    best_tokens,
    best_unfinished,
    check_beam,
    likeliest_token,
)


def by_sorting(log_probs: Tensor, totals: Tensor, count: int) -> Candidates:
    vocabulary = log_probs.shape[1]
    all_totals = (log_probs.double().view(*totals.shape, vocabulary) + totals[..., None]).flatten(1)
    ordered, position = all_totals.sort(dim=1, descending=True, stable=True)
    ordered, position = ordered[:, :count], position[:, :count]
    return Candidates(ordered, position // vocabulary, position % vocabulary)


def assert_same(found: Candidates, expected: Candidates) -> None:
    real = expected.totals != -torch.inf  # impossible candidates may be in any order
    torch.testing.assert_close(found.totals, expected.totals, rtol=0, atol=0)
    assert (found.parents == expected.parents)[real].all()
    assert (found.token_ids == expected.token_ids)[real].all()


@pytest.mark.parametrize("levels", [2, 97, 10**6])
@pytest.mark.parametrize("vocabulary", [5, 61, CHUNK, CHUNK + 1, 1009, 1024])
def test_the_likeliest_token_is_the_first_of_the_maximum(vocabulary: int, levels: int) -> None:
    log_probs = -torch.randint(levels, (101, vocabulary)).float()
    log_probs[3] = -torch.inf
    log_probs[4, :-1] = -torch.inf
    for rows in (log_probs, log_probs[:5]):
        best, token_ids = likeliest_token(rows)
        assert torch.equal(best, rows.amax(-1))
        assert torch.equal(token_ids, (rows == best[:, None]).byte().argmax(-1))


@pytest.mark.parametrize("levels", [0, 3, 97])
@pytest.mark.parametrize("vocabulary", [5, 61, 1009, 1024, 4099])
def test_candidates_are_those_of_a_stable_sort(vocabulary: int, levels: int) -> None:
    log_probs = torch.randn(21, vocabulary).log_softmax(-1)
    if levels:  # many ties; powers of two, so that equal sums are exactly equal
        log_probs = -torch.randint(levels, (21, vocabulary)).float() / 4
    totals = -torch.randint(5, (7, 3)).double() / 4
    log_probs[torch.rand(21, vocabulary) < 0.3] = -torch.inf
    log_probs[4] = totals[5, 2] = -torch.inf
    for count in (1, 3, 10, 16):
        assert_same(best_candidates(log_probs.clone(), totals, count), by_sorting(log_probs, totals, count))


def coarse(rows: int, vocabulary: int) -> Tensor:
    """Return log-probabilities on the grid of bfloat16, of which many are equal and some are impossible."""
    log_probs = (3 * torch.randn(rows, vocabulary)).log_softmax(-1).bfloat16().float()
    log_probs[torch.rand(rows, vocabulary) < 0.2] = -torch.inf
    log_probs[::5, 2:] = log_probs[::7, 1:] = -torch.inf
    return log_probs


@pytest.mark.parametrize("count", [1, 2, 5, 11, 64])
@pytest.mark.parametrize("vocabulary", [2, 7, 61, 1009, 4099])
def test_the_best_tokens_on_a_coarse_grid_are_those_of_a_stable_sort(vocabulary: int, count: int) -> None:
    torch.manual_seed(vocabulary + count)
    for make in (coarse, lambda rows, words: -torch.randint(3, (rows, words)).float()):
        log_probs = make(23, vocabulary)
        values, token_ids = best_tokens(log_probs.clone(), count)
        expected, expected_ids = (x[:, :count] for x in log_probs.sort(dim=-1, descending=True, stable=True))
        assert torch.equal(values, expected)
        real = expected != -torch.inf
        assert torch.equal(token_ids[real], expected_ids[real])
        assert all(len(set(row)) == len(row) for row in token_ids.tolist())


def test_ties_sort_no_more_than_the_tokens_that_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    sort, widths = Tensor.sort, set()

    def noted(tensor: Tensor, *args: Any, **options: Any) -> Any:
        widths.add(tensor.shape[-1])
        return sort(tensor, *args, **options)

    monkeypatch.setattr(Tensor, "sort", noted)
    best_tokens(coarse(101, 4099), 11)
    assert widths == {11}


@pytest.mark.parametrize("vocabulary", [7, CHUNK + 1, 4099])
def test_nan_counts_as_the_greatest(vocabulary: int) -> None:
    log_probs = -torch.randint(3, (11, vocabulary)).float()
    log_probs[0], log_probs[1, 3], log_probs[2, -1], log_probs[4] = torch.nan, torch.nan, torch.nan, -torch.inf
    log_probs[4, 3] = torch.nan
    best, token_ids = likeliest_token(log_probs)
    assert best.isnan().nonzero()[:, 0].tolist() == [0, 1, 2, 4]
    assert token_ids[[1, 2, 4]].tolist() == [3, vocabulary - 1, 3]
    values, several = best_tokens(log_probs, 5)
    assert several[[1, 2, 4], 0].tolist() == [3, vocabulary - 1, 3]
    assert values.isnan().sum(-1).tolist() == [5, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0]


def test_the_best_may_be_in_one_chunk_or_after_the_last() -> None:
    vocabulary = 40 * CHUNK + 7
    for positions in (range(3 * CHUNK, 3 * CHUNK + 6), range(vocabulary - 6, vocabulary)):
        log_probs = torch.full((2, vocabulary), -9.0)
        log_probs[:, list(positions)] = torch.arange(6.0) - 6
        found = best_candidates(log_probs, torch.zeros(2, 1, dtype=torch.float64), 6)
        assert found.token_ids.tolist() == [list(reversed(positions))] * 2


def test_there_may_be_fewer_candidates_than_asked_for() -> None:
    found = best_candidates(torch.zeros(6, 3), torch.zeros(2, 3, dtype=torch.float64), 10)
    assert found.token_ids.tolist() == [[0, 1, 2] * 3] * 2
    assert found.parents.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2


def test_the_unfinished_are_only_as_many_as_do_not_end_in_any_sentence() -> None:
    totals = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]])
    ends = torch.tensor([[True, False, True], [False, True, False]])
    found = best_unfinished(Candidates(totals, torch.tensor([[0, 1, 2]] * 2), torch.tensor([[4, 5, 6]] * 2)), ends, 3)
    assert found.totals.tolist() == [[-2.0, -torch.inf], [-1.0, -3.0]]
    assert (found.parents[0, 0], found.parents[1].tolist()) == (1, [0, 2])
    assert (found.token_ids[0, 0], found.token_ids[1].tolist()) == (5, [4, 6])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ((0, 0, None), r"^search.beam_size=0 must be at least 1; use 5$"),
        ((5, 0, None), r"^search.num_best=0 must be at least 1 and at most search.beam_size=5; use search.num_best=1$"),
        ((5, 7, None), r"=7 must be at least 1 and at most .*; use search.num_best=5 or a larger beam$"),
        ((5, 5, 0.0), r"^search.patience=0.0 must be greater than 0; use 1.0, or null for no limit$"),
    ],
)
def test_options_out_of_range_are_refused(settings: tuple[int, int, float | None], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_beam(*settings)
    check_beam(5, 5, 0.5)
