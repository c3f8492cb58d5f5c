"""docs/evaluating.md: every metric has its row, commands compose, sacreBLEU's and those of translations work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from configs import CONF, ROOT, composed, options
from hydra import compose, initialize_config_dir
from small_run import WORDS
from test_readme import jobs

from seq2seq_attn.comparison.translations import main

PAGE = (ROOT / "docs" / "evaluating.md").read_text("utf-8")
LINES = "".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).splitlines()


def test_every_metric_has_its_row() -> None:
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")))
    assert sorted(set(named) - {"metric"}) == options("metric")


@pytest.mark.parametrize(
    ("name", "overrides"), re.findall(r"^(?:python|seq2seq-attn) (train|evaluate)(?:\.py)? (.+)$", PAGE, re.MULTILINE)
)
def test_a_command_composes(name: str, overrides: str) -> None:
    for job in jobs(f"python {name}.py {overrides}"):
        if name == "train":
            assert composed(*job).model
        else:
            with initialize_config_dir(str(CONF), version_base="1.3"):
                assert compose("evaluate", job).ckpt_path


def run_line(line: str, folder: Path, **environment: str) -> str:
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=os.environ | environment)
    return done.stdout


@pytest.mark.parametrize("references", [1, 2])
def test_translations_from_elsewhere_are_compared(
    references: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "evaluate" / "A"
    folder.mkdir(parents=True)
    targets = [" ".join(WORDS[row : row + 7]) for row in range(9)]
    rows = [f"source {row}\t{target}\t{target[:9]}\n" for row, target in enumerate(targets)]
    (folder / "translations.tsv").write_text("".join(rows), encoding="utf-8")
    versions = ["\t".join([target, "another one"][:references]) + "\n" for target in targets]
    (folder / "translations.references").write_text("".join(versions), encoding="utf-8")
    (tmp_path / "other.fr").write_text("".join(f"{target}\n" for target in targets), encoding="utf-8")
    first, second, compare = (line for line in LINES if "runs/evaluate/A" in line)
    for line in (first, second, *(re.findall(r"`(cp .+?)`", PAGE) if references > 1 else [])):
        run_line(line, tmp_path)
    assert (tmp_path / "source.txt").read_text() == "".join(f"source {row}\n" for row in range(9))
    monkeypatch.chdir(tmp_path)
    main([*shlex.split(compare)[3:], "--resamples", "100"])
    assert re.search(r"other\.tsv\s+│\s+100\.00", capsys.readouterr().out)


def test_sacrebleu_writes_a_test_set_as_pairs(tmp_path: Path) -> None:
    (tmp_path / "wmt14").mkdir()
    for field in ("src", "ref", "docid", "genre", "origlang"):
        (tmp_path / "wmt14" / f"wmt14.en-fr.{field}").write_text(f"{field} one\n{field} two\n", encoding="utf-8")
    program = str(Path(sys.executable).parent)
    (line,) = (line for line in LINES if line.endswith("> wmt14.tsv"))
    run_line(line, tmp_path, SACREBLEU=str(tmp_path), PATH=f"{program}:{os.environ['PATH']}")
    assert (tmp_path / "wmt14.tsv").read_text() == "src one\tref one\nsrc two\tref two\n"
    (tmp_path / "wmt14.fr").write_text("ref one\nref two\n", encoding="utf-8")
    (line,) = (line for line in LINES if line.startswith("sacrebleu -t wmt14 -l en-fr -i"))
    assert '"score": 100.0' in run_line(line, tmp_path, SACREBLEU=str(tmp_path), PATH=f"{program}:{os.environ['PATH']}")
