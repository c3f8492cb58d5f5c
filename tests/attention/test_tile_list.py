"""The tiles for the kernels of a GPU hold each allowed pair of a pattern exactly once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import self_layer
from torch import Tensor

from seq2seq_attn.attention.backend import fused
from seq2seq_attn.attention.backend.kernel.tile_list import Tile, TileList, tiles_of_blocks, tiles_of_gathered
from seq2seq_attn.attention.block import Band, Block
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern

ROWS = 16
GATHERED = ["global_local", "bigbird", "dilated", "block_summary"]


def of_group(tiles: TileList, group: int) -> list[Tile]:
    return [tile for numbers in tiles.table.tolist() if (tile := Tile(*numbers)).group == group]


def times_seen(tiles: TileList, target: int, source: int) -> Tensor:
    """Return how many tiles hold each pair, reading the table as the kernels do."""
    counts = torch.zeros(target, source, dtype=torch.long)
    for numbers in tiles.table.tolist():
        tile = Tile(*numbers)
        assert 0 < tile.rows <= ROWS
        rows = tile.row + tile.spacing * torch.arange(tile.rows)
        if tiles.listed_keys is None or tiles.pairs is None:
            keys = tile.key + tile.spacing * torch.arange(tile.keys)
            seen = torch.ones(tile.rows, tile.keys, dtype=torch.bool)
        else:
            keys = tiles.listed_keys[tile.first_listed : tile.first_listed + tile.keys].long()
            index = tile.first_pair + tile.pairs_of_row * torch.arange(tile.rows)[:, None] + torch.arange(tile.keys)
            seen = tiles.pairs[index]
        distance = keys - rows[:, None]
        seen = seen & (distance >= -tile.before) & (distance <= tile.after)
        seen = seen & ((distance != 0) | (tile.exclude_self == 0))
        one = torch.zeros(target, source, dtype=torch.long)
        one[rows[:, None].expand_as(seen)[seen], keys.expand_as(seen)[seen]] = 1
        counts += one
    return counts


def check(pattern: Any, target: int, source: int, causal: bool) -> None:
    if pattern.gathers:
        tiles = tiles_of_gathered(pattern.gathered_blocks(target, source, causal), ROWS)
    else:
        tiles = tiles_of_blocks(pattern.block_groups(target, source, causal), target, source, ROWS)
    allowed = pattern.allowed(torch.arange(target)[None], torch.arange(source))[0]
    allowed = allowed & (torch.arange(source) <= torch.arange(target)[:, None]) if causal else allowed
    assert torch.equal(times_seen(tiles, target, source), allowed.long())
    for group in range(tiles.groups):
        rows = [set(range(t.row, t.row + t.rows * t.spacing, t.spacing)) for t in of_group(tiles, group)]
        assert sum(map(len, rows)) == len(set().union(*rows))  # a row is in at most one tile


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [LocalPattern, AtrousPattern, SparsePattern])
@pytest.mark.parametrize("k", [1, 3, 7, 40])
def test_tiles_of_blocks_hold_each_pair_once(kind: Any, k: int, causal: bool) -> None:
    for target, source in [(131, 131), (1, 1)] if causal else [(131, 131), (40, 131), (131, 40), (1, 5)]:
        check(kind(k=k, length_ratio=1.0), target, source, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", GATHERED)
def test_tiles_of_gathered_blocks_hold_each_pair_once(preset: str, causal: bool) -> None:
    for length in (1, 67, 300):
        check(self_layer(preset).attention.pattern, length, length, causal)


def test_blocks_that_a_band_does_not_join_stay_apart() -> None:
    """A pattern of one's own may cut a band into chunks that do not see each other."""
    block = Block(0, 0, 32, 32, repeats=2, step=32, band=Band(8, 8))
    distance = torch.arange(64) - torch.arange(64)[:, None]
    same_chunk = torch.arange(64) // 32 == torch.arange(64)[:, None] // 32
    expected = (distance.abs() <= 8) & same_chunk
    assert torch.equal(times_seen(tiles_of_blocks([[block]], 64, 64, ROWS), 64, 64), expected.long())


def test_tiles_with_the_most_keys_are_first() -> None:
    blocks = self_layer("global_local").attention.pattern.gathered_blocks(300, 300, False)
    keys = tiles_of_gathered(blocks, ROWS).table[:, 3]
    assert keys[0] == 300
    assert (keys[1:] <= keys[:-1]).all()


@pytest.mark.parametrize("preset", ["local", "atrous", "sparse", *GATHERED])
def test_the_kernels_are_asked_from_the_length_on_from_which_blocks_serve(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, asked, answer = self_layer(preset), [], torch.ones(1, 8, 700, 2)
    pattern = layer.attention.pattern

    def product(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, of: Any, causal: bool) -> Tensor:
        asked.append((keys.shape[2], of is pattern, causal))
        return answer[:, :, : query.shape[2]]

    monkeypatch.setattr(fused, "gpu_product", product)
    pattern.fused_from = 600
    for causal in (False, True):
        for length in (599, 600):
            layer(torch.randn(1, length, 16), causal=causal)
    assert asked == [(600, True, False), (600, True, True)]
