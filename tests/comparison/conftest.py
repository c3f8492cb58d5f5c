"""Folders that tests of several scripts' parts share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    from comparison.made_runs import write_sweep  # which loads scripts that most tests do without

    return write_sweep(tmp_path / "sweep")
