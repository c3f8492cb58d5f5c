"""Sums and lists over the processes of a run; with a single process they cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from jaxtyping import Num
from torch import Tensor

T = TypeVar("T")


def sum_over_ranks(values: Num[Tensor, "..."]) -> Num[Tensor, "..."]:
    """Return the sum of every process's values, the same on each; `values` itself if there is one process."""
    if num_ranks() == 1:
        return values
    summed = values.clone()
    torch.distributed.all_reduce(summed)
    return summed


def gather_from_ranks(value: T) -> list[T]:
    """Return the value of every process, by rank. They are pickled, so they should be small or rare."""
    values = [value] * num_ranks()
    if len(values) > 1:
        torch.distributed.all_gather_object(values, value)
    return values


def num_ranks() -> int:
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if distributed else 1


@contextmanager
def others_wait() -> Iterator[None]:
    """Let the other ranks wait, without a time limit, until the block has ended on all of them.

    A collective would fail in them after half an hour. The barrier, private to Lightning 2.6.6, is the one that it uses
    for the preparation of data.
    """
    from lightning_fabric.utilities.distributed import _InfiniteBarrier

    with _InfiniteBarrier():
        yield
