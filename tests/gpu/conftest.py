"""Tests of a GPU are skipped without one."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def needs_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
