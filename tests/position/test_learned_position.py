"""Learned positions: a row of the table for each, and sentences longer than the table."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.learned import LearnedPosition


def learned(join: str = "add") -> LearnedPosition:
    return LearnedPosition(dim=3, join=join, max_length=7)


def test_position_p_adds_row_p_of_the_table() -> None:
    positions = learned()
    positions.table.data = torch.arange(21.0).view(7, 3)
    found = positions(torch.full((2, 2, 3), 100.0), start=4)
    assert found.tolist() == [[[112.0, 113.0, 114.0], [115.0, 116.0, 117.0]]] * 2


def test_only_positions_that_were_used_get_gradients() -> None:
    positions, upstream = learned(), torch.randn(2, 3, 3)
    (positions(torch.randn(2, 3, 3), start=2) * upstream).sum().backward()
    expected = torch.zeros(7, 3)
    expected[2:5] = upstream.sum(0)
    torch.testing.assert_close(positions.table.grad, expected)


@pytest.mark.parametrize(("start", "length"), [(0, 8), (7, 1), (5, 3)])
def test_a_sentence_beyond_the_table_is_refused(start: int, length: int) -> None:
    positions = learned()
    assert positions.max_length == 7
    assert positions(torch.zeros(1, 7 - start, 3), start=start).isfinite().all()
    with pytest.raises(
        UserError,
        match=r"^position\.max_length=7 is too small for a sentence of 8 tokens; "
        r"increase it and train again, or use position=sinusoidal$",
    ):
        positions(torch.zeros(1, length, 3), start=start)


def test_vectors_start_with_the_variance_of_the_embeddings() -> None:
    table = LearnedPosition(dim=101, join="add", max_length=997).table
    torch.testing.assert_close(table.std(), torch.tensor(101**-0.5), rtol=2e-2, atol=0)
