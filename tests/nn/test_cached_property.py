"""Attributes that are computed once, in compiled programs, too."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor

from seq2seq_attn.nn.cached_property import CachedProperty


class Doubling:
    def __init__(self, x: Tensor) -> None:
        self.x, self.times = x, 0

    @CachedProperty
    def doubled(self) -> Tensor:
        self.times += 1
        return 2 * self.x


def test_it_is_computed_when_first_read() -> None:
    assert isinstance(Doubling.doubled, CachedProperty)
    doubling = Doubling(torch.ones(1))
    assert (doubling.times, doubling.doubled, doubling.doubled, doubling.times) == (0, 2, 2, 1)


def test_a_compiled_program_that_reads_it_is_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    # without the checks of types in tests, which torch cannot compile
    monkeypatch.setattr(CachedProperty, "__get__", inspect.unwrap(CachedProperty.__get__))

    def twice(x: Tensor) -> Tensor:
        doubling = Doubling(x)
        return doubling.doubled + doubling.doubled + doubling.times

    assert torch.compile(twice, backend="eager", fullgraph=True)(torch.ones(1)) == 5
