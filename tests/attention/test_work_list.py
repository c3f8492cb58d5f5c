"""The pieces of work for a GPU hold each allowed pair of a pattern exactly once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import self_layer

from seq2seq_attn.attention.backend.kernel.work_list import Piece, WorkList, work_list
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

ROWS = 16


def seen_pairs(work: WorkList, target: int, source: int) -> torch.Tensor:
    """Return how often each pair is in a piece, by group."""
    counts = torch.zeros(work.groups, target, source, dtype=torch.long)
    for numbers in work.pieces.tolist():
        piece = Piece(*numbers)
        assert 0 < piece.rows <= ROWS
        rows = piece.row + piece.spacing * torch.arange(piece.rows)
        if work.listed_keys is None or work.pairs is None:
            keys = piece.key + piece.spacing * torch.arange(piece.keys)
            distance = keys - rows[:, None]
            seen = (distance >= -piece.before) & (distance <= piece.after)
            seen &= (distance != 0) | (piece.exclude_self == 0)
        else:
            keys = work.listed_keys[piece.listed : piece.listed + piece.keys].long()
            places = piece.pair + piece.pairs_of_row * torch.arange(piece.rows)[:, None] + torch.arange(piece.keys)
            seen = work.pairs[places]
        assert (keys < source).all()
        assert (rows < target).all()
        counts[piece.group].index_put_((rows[:, None].expand_as(seen)[seen], keys.expand_as(seen)[seen]),
                                       torch.ones(()).long(), accumulate=True)  # fmt: skip
    return counts


def check(pattern: Any, target: int, source: int, causal: bool) -> None:
    if pattern.gathers:
        groups = [pattern.gathered_blocks(target, source, causal)]
    else:
        groups = pattern.block_groups(target, source, causal)
    work = work_list(groups, target, source, ROWS)
    allowed = pattern.allowed(torch.arange(target)[None], torch.arange(source))[0]
    allowed = allowed & (torch.arange(source) <= torch.arange(target)[:, None]) if causal else allowed
    counts = seen_pairs(work, target, source)
    assert torch.equal(counts.sum(0), allowed.long())
    for group in range(work.groups):
        rows = [set(range(p.row, p.row + p.rows * p.spacing, p.spacing)) for p in pieces_of(work, group)]
        assert sum(map(len, rows)) == len(set().union(*rows))  # a row is in at most one piece


def pieces_of(work: WorkList, group: int) -> list[Piece]:
    return [piece for numbers in work.pieces.tolist() if (piece := Piece(*numbers)).group == group]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [LocalPattern, AtrousPattern, SparsePattern])
@pytest.mark.parametrize("k", [1, 3, 7, 40])
def test_pieces_of_blocks_hold_each_pair_once(kind: Any, k: int, causal: bool) -> None:
    for target, source in [(131, 131), (1, 1)] if causal else [(131, 131), (40, 131), (131, 40), (1, 5)]:
        check(kind(k=k, length_ratio=1.0), target, source, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", ["global_local", "bigbird", "dilated", "block_summary"])
def test_pieces_of_gathered_tiles_hold_each_pair_once(preset: str, causal: bool) -> None:
    pattern = self_layer(preset).attention.pattern
    for length in (1, 67, 300):
        check(pattern, length, length, causal)


def test_the_longest_pieces_are_first() -> None:
    pattern = self_layer("global_local").attention.pattern
    keys = work_list([pattern.gathered_blocks(300, 300, False)], 300, 300, ROWS).pieces[:, 3]
    assert keys[0] == 300
    assert (keys[1:] <= keys[:-1]).all()
