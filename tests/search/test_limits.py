"""Length limits of each sentence, which depend on its own source alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.limits import Limits

LENGTHS = (7, 3, 1)
MASK = torch.arange(11) < torch.tensor(LENGTHS)[:, None]


def limits(**some: float) -> Limits:
    free = {"max_length": 999, "max_relative_length": 99.0, "max_extra_length": 0, "min_length": 0}
    return Limits(**{**free, "min_relative_length": 0.0, **some})


def pairs(least: Tensor, most: Tensor) -> list[tuple[int, int]]:
    return list(zip(least.tolist(), most.tolist(), strict=True))


def test_a_limit_is_that_of_a_sentence_and_not_of_its_padded_batch() -> None:
    found = limits(max_relative_length=1.5, max_extra_length=2, min_relative_length=0.4)(MASK, None, None)
    assert pairs(*found) == [(3, 12), (2, 6), (1, 3)]
    for row, length in enumerate(LENGTHS):
        alone = limits(max_relative_length=1.5, max_extra_length=2, min_relative_length=0.4)(
            MASK[row : row + 1, :length], None, None
        )
        assert pairs(*alone) == [pairs(*found)[row]]


def test_products_of_lengths_are_not_rounded_to_the_next_number() -> None:
    lengths = range(1, 121)
    mask = torch.arange(120) < torch.tensor(lengths)[:, None]
    for twentieths in range(1, 40):
        ratio = twentieths / 20
        _, most = limits(max_relative_length=ratio)(mask, None, None)
        least, _ = limits(min_relative_length=ratio)(mask, None, None)
        assert most.tolist() == [twentieths * length // 20 for length in lengths]
        assert least.tolist() == [-(-twentieths * length // 20) for length in lengths]


def test_the_lower_of_the_upper_limits_and_the_upper_of_the_lower_ones_hold() -> None:
    found = limits(max_relative_length=2.0, max_length=8, min_length=2, min_relative_length=0.5)
    assert pairs(*found(MASK, None, None)) == [(4, 8), (2, 6), (2, 2)]
    # a model that reads 6 tokens, begin token included, produces at most 5
    assert pairs(*found(MASK, 6, None)) == [(4, 5), (2, 5), (2, 2)]


def test_without_a_source_only_the_greatest_length_holds() -> None:
    found = limits(max_length=12, max_relative_length=1.5, max_extra_length=2, min_length=3)
    assert pairs(*found(MASK[:, :0], None, None)) == [(3, 12)] * 3


def test_where_limits_cross_the_upper_one_holds() -> None:
    assert pairs(*limits(max_relative_length=1.0, min_length=5)(MASK, None, None)) == [(5, 7), (3, 3), (1, 1)]


def test_a_forced_beginning_may_be_longer_than_the_limit_but_not_than_the_model() -> None:
    prefixes = [[4] * 5, [4] * 5, []]
    assert pairs(*limits(max_length=2)(MASK, None, prefixes)) == [(0, 5), (0, 5), (0, 2)]
    assert pairs(*limits(max_length=2)(MASK, 4, prefixes)) == [(0, 3), (0, 3), (0, 2)]


@pytest.mark.parametrize(("most", "least"), [(0, 0), (3, 4)])
def test_limits_that_no_length_meets_are_refused(most: int, least: int) -> None:
    sentence = (
        f"no length meets search.limits.max_length={most} and min_length={least}; use max_length >= 1 and "
        "min_length <= max_length"
    )
    with pytest.raises(UserError, match=sentence):
        limits(max_length=most, min_length=least)


@pytest.mark.parametrize("huge", [1e18, 1e20, float("inf")])
def test_a_huge_relative_limit_is_no_limit(huge: float) -> None:
    assert pairs(*limits(max_length=12, max_relative_length=huge)(MASK, None, None)) == [(0, 12)] * 3
    assert pairs(*limits(max_length=12, min_relative_length=huge)(MASK, None, None)) == [(12, 12)] * 3
