"""Around imports the collector of garbage rests, once a process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from seq2seq_attn.cli.entry import importing


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.enable()
    gc.unfreeze()


def test_what_is_imported_is_left_out_of_later_rounds() -> None:
    with importing():
        assert not gc.isenabled()
        imported = [[]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(found is imported for found in gc.get_objects())


@pytest.mark.slow
def test_a_second_job_of_a_sweep_freezes_nothing_more() -> None:
    with importing():
        pass
    frozen = gc.get_freeze_count()
    with importing():
        assert gc.isenabled()
        left = [[number] for number in range(1000)]
    assert gc.get_freeze_count() <= frozen
    assert len(left) == 1000


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError, match="absent"), importing():
        raise ImportError("absent")
    assert gc.isenabled()
