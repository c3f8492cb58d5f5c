"""The explorer's page is formatted and linted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from configs import ROOT

BIOME = shutil.which("biome", path=str(Path(sys.executable).parent)) or shutil.which("biome")


@pytest.mark.skipif(BIOME is None, reason="no biome: make check-page installs it")
def test_the_page_is_formatted_and_linted() -> None:
    assert BIOME is not None
    checked = subprocess.run([BIOME, "check", "--colors=off"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
