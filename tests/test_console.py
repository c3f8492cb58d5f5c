"""Text that is not ours is printed as it is, whatever it looks like to Rich."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import ROOT

from seq2seq_attn.sweep.job import Job
from seq2seq_attn.sweep.sweep import print_table
from seq2seq_attn.text import plain_console
from seq2seq_attn.training.results import print_results

ODD = "a[b][/red] :smile:"


def test_a_run_folder_of_any_name_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    results = {"model": ODD, "attention": "none", "test/bleu": 1.0, "test/bleu_signature": ODD, "data": ODD}
    print_results(Path("/runs") / ODD, results)
    said = capsys.readouterr().out
    assert f"Run folder: /runs/{ODD}\n" in said
    assert f"""ckpt_path='"/runs/{ODD}"'\n""" in said
    assert f"bleu: {ODD} (test)\n" in said
    assert f"{ODD} · attention=none · data={ODD}\n" in said


def test_the_table_of_a_sweep_prints_overrides_and_folders_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    job = Job(0, ("slots=[/cross]",), tmp_path / "0")
    job.write("complete", minutes=1.0)
    print_table(Path(ODD), [job])
    said = capsys.readouterr().out
    assert f"Sweep: {ODD}" in said
    assert "slots=[/cross]" in said


def test_no_console_of_the_project_reads_markup() -> None:
    """Rich's own is made in one position."""
    made = [
        str(path.relative_to(ROOT))
        for folder in ("seq2seq_attn", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if any(" Console(" in line or line.startswith("Console(") for line in path.read_text("utf-8").splitlines())
    ]
    assert made == ["seq2seq_attn/text.py"]
    assert plain_console().render_str(ODD).plain == ODD
