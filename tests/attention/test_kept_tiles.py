"""What of the GPU's product needs no GPU: whether its kernels run, and which tiles are kept."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attention.layers import self_layer

from seq2seq_attn.attention.backend.kernel import gpu_product as module
from seq2seq_attn.attention.backend.kernel.tile_list import TileList
from seq2seq_attn.attention.pattern.local import LocalPattern

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(TileList, "to", lambda tiles, device: tiles)
    module.CACHED_TILES.clear()
    yield
    module.CACHED_TILES.clear()


def cached(pattern: Any, length: int) -> TileList | None:
    return module.CACHED_TILES.make_once(module.tiles_of, pattern, length, length, False, CPU)


def test_kernels_that_fail_are_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        @staticmethod
        def apply(*_: Any) -> Any:
            raise RuntimeError("no compiler")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(module, "TileAttention", Failing)
    with pytest.warns(UserWarning, match=r"do not run here \(RuntimeError: no compiler\); they need a C compiler"):
        assert not module.runs_kernels.__wrapped__(CPU)


@pytest.mark.parametrize(("spec", "capability"), [(None, (9, 0)), (object(), (7, 5))])
def test_without_triton_or_on_an_older_gpu_they_are_not_tried(
    spec: Any, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(module, "TileAttention", None)
    assert not module.runs_kernels.__wrapped__(CPU)


def test_equal_patterns_share_their_tiles() -> None:
    first = cached(LocalPattern(k=3, length_ratio=1.0), 67)
    assert cached(LocalPattern(k=3, length_ratio=1.0), 67) is first
    assert cached(LocalPattern(k=4, length_ratio=1.0), 67) is not first
    assert cached(LocalPattern(k=3, length_ratio=1.0), 68) is not first


def test_few_tiles_are_kept_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = LocalPattern(k=3, length_ratio=1.0)
    for length in range(1, module.CACHED_TILES.most + 5):
        cached(pattern, length)
    assert len(module.CACHED_TILES) == module.CACHED_TILES.most
    monkeypatch.setattr(module.CACHED_TILES, "most_bytes", 2 * 48)  # two tiles of twelve numbers
    last = cached(pattern, 50)
    assert list(module.CACHED_TILES.values())[-1] is last
    assert len(module.CACHED_TILES) == 2
    monkeypatch.setattr(module.CACHED_TILES, "most_bytes", 1)
    largest = cached(pattern, 51)
    assert cached(pattern, 51) is largest
    assert len(module.CACHED_TILES) == 1


def test_more_pairs_than_an_int32_counts_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = self_layer("global_local").attention.pattern
    assert cached(pattern, 300) is not None
    monkeypatch.setattr(module, "MOST_PAIRS", 1000)
    assert cached(pattern, 301) is None
