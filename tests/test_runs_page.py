"""docs/runs.md: the command of a run is printed as a shell reads it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from configs import ROOT

from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus
from seq2seq_attn.training.provenance import provenance

PAGE = (ROOT / "docs" / "runs.md").read_text("utf-8")


def test_the_command_of_a_run_is_printed_as_a_shell_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train.py", "data.corpora={all:{train:my pairs.tsv}}", "seed=1"]
    monkeypatch.setattr(sys, "argv", words)
    corpus = LoadedCorpus({}, CleaningReport({}), "en", "fr")
    folder = tmp_path / "runs" / "train" / "mine"
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text(json.dumps(provenance(corpus)), encoding="utf-8")
    (line,) = re.findall(r"^python (-c .+)$", PAGE, re.MULTILINE)
    command = ["bash", "-c", f"'{sys.executable}' {line}"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed == "python train.py 'data.corpora={all:{train:my pairs.tsv}}' seed=1\n"
