"""Packages that others wrote, from the extra `others`, which `make test-others` installs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


def package(name: str) -> Any:
    """Import a package, whose warnings are not ours, or skip the tests of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason="pip install -e '.[others]'")
