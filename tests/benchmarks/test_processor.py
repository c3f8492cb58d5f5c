"""The name of a processor tells generations apart that share a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchmarks import processor as script

INFO = """\
processor	: 0
cpu family	: 25
model		: 1
model name	: AMD   EPYC
processor	: 1
cpu family	: 26
"""


def test_family_and_model_follow_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "CPU_INFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(INFO)
    assert script.processor() == "AMD EPYC, family 25 model 1"
    (tmp_path / "cpuinfo").write_text("model name	: ARM\n")
    assert script.processor() == "ARM"


def test_without_the_file_there_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "CPU_INFO", tmp_path / "cpuinfo")
    assert script.processor()
