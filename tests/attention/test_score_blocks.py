"""Every score in conf/attention/score on blocks of rows and columns, as a sparse pattern cuts them."""

from __future__ import annotations

import pytest
import torch
from configs import attention_of, options
from torch import Tensor

from seq2seq_attn.attention.backend.blocks import flatten_blocks, to_rows
from seq2seq_attn.attention.block import Block
from seq2seq_attn.attention.state import QueryKeyPositions

SCORES = [name for name in options("attention/score") if name != "mixture"]  # which is empty as it stands
BATCH, HEADS, LENGTH, WIDTH = 2, 8, 7, 24
ROWS = torch.tensor([[0, 1], [4, 2], [6, 5]])  # (blocks, rows)
COLUMNS = torch.tensor([[0, 1, 2, 3, 4], [6, 3, 0, 1, 5], [2, 6, 5, 4, 3]])  # (blocks, columns)
pytestmark = pytest.mark.usefixtures("double")


def positions(rows: Tensor, columns: Tensor) -> QueryKeyPositions:
    end = torch.tensor([LENGTH, LENGTH - 2])[:, None] if rows.dim() == 1 else torch.tensor([[[7]], [[5]]])
    lengths = {"target_length": LENGTH, "source_length": LENGTH}
    return QueryKeyPositions(lambda: rows, lambda: columns, lambda: end.expand(BATCH, *rows.shape), **lengths)


def cut(prepared: tuple[Tensor, ...], where: Tensor) -> tuple[Tensor, ...]:
    """Rows of (batch, heads, length, width) as (batch, blocks, heads, rows, width)."""
    return tuple(x[:, :, where].movedim(1, 2) for x in prepared)


@pytest.mark.parametrize("name", SCORES)
def test_a_block_equals_the_same_rows_and_columns_of_the_dense_pass(name: str) -> None:
    score = attention_of(
        "multihead",
        f"attention/score={name}",
        f"attention.num_heads={HEADS}",
        query_dim=WIDTH,
        key_dim=WIDTH,
        value_dim=WIDTH,
    ).score
    x = torch.randn(BATCH, LENGTH, WIDTH)
    query, keys = score.prepare_query(x), score.prepare_keys(x)
    assert (len(query), len(keys)) == (score.query_parts, score.key_parts)
    dense = score(query, keys, positions(torch.arange(LENGTH), torch.arange(LENGTH)))
    found = score(cut(query, ROWS), cut(keys, COLUMNS), positions(ROWS, COLUMNS))
    expected = dense[:, :, ROWS[:, :, None], COLUMNS[:, None, :]].movedim(1, 2)
    assert found.shape[1:] == (3, HEADS, 2, 5)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_what_a_score_looks_at_in_a_block_is_what_it_looks_at_in_the_dense_pass() -> None:
    score = attention_of("fixed_patterns", query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).score
    dense = score.visible(positions(torch.arange(LENGTH), torch.arange(LENGTH)))
    found = score.visible(positions(ROWS, COLUMNS))
    assert torch.equal(found, dense[:, :, ROWS[:, :, None], COLUMNS[:, None, :]].movedim(1, 2))


def test_rows_that_are_whole_already_are_not_copied() -> None:
    x = torch.randn(BATCH, 1, HEADS, 5, 7)
    rows = flatten_blocks(x, 7)
    assert rows.data_ptr() == x.data_ptr()
    assert to_rows(rows, [Block(0, 0, 5, 7)], 5) is rows
