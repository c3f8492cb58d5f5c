"""Tests run on one thread and in float64 unless they say otherwise."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Of the whole session, so that models which several tests share are trained alike everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def hears_hang_ups() -> None:
    """Also under nohup, which would have the commands that tests start ignore SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def reproducible(one_thread: None) -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)  # whatever a test has chosen


@pytest.fixture
def double() -> Iterator[None]:
    """New floating tensors are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the warnings of Lightning and torch, which a command leaves out or shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that name three small sets of pairs."""
    from small_run import write_pairs  # which takes seconds, and most tests do without

    return write_pairs(tmp_path_factory.mktemp("pairs"))
