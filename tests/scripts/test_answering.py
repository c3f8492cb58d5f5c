"""Every script answers a place that holds nothing for it with one sentence and exit code 2."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from load_script import ROOT, load_script

from seq2seq_attn.tensors.error import UserError

answering = load_script("answering")
SCRIPTS = ROOT / "scripts"
# What is typed behind each script; PLACE is what is not there, or nothing of its kind, and NEW a file to write.
TYPED = {
    "average_checkpoints": ["PLACE", "--last", "2", "--output", "NEW.ckpt"],
    "benchmark_decoding": ["PLACE", "--output", "NEW"],
    "benchmark_minutes": ["--data", "PLACE", "--runs", "NEW", "--environments", "NEW"],
    "benchmark_training": ["--data", "PLACE", "--output", "NEW"],
    "check_import_layers": ["PLACE"],
    "check_tokenization": ["--path", "PLACE"],
    "compare_by_length": ["PLACE"],
    "compare_runs": ["PLACE", "--output", "NEW.html"],
    "compare_translations": ["PLACE", "PLACE"],
    "decode_with_joeynmt": ["PLACE", "1"],
    "draw_attention": ["PLACE", "A sentence.", "NEW"],
    "draw_curves": ["PLACE", "--output", "NEW.png"],
    "draw_decoding": ["PLACE"],
    "draw_minutes": ["PLACE"],
    "draw_training": ["PLACE"],
    "draw_weights": ["PLACE", "--sentence", "A sentence.", "--output", "NEW"],
    "export_ctranslate2": ["PLACE", "NEW"],
    "export_safetensors": ["PLACE", "NEW"],
    "learn_with_joeynmt": ["PLACE", "1"],
    "measure_alignments": ["PLACE", "--corpus", "PLACE"],
    "train_classifier": ["--path", "PLACE"],
    "train_plainly": ["PLACE", "chunked"],
    "train_with_eole": ["PLACE"],
    "train_with_hf": ["PLACE"],
    "train_with_joeynmt": ["PLACE"],
    "train_with_opennmt": ["PLACE"],
    "write_benchmark_page": ["--folder", "PLACE"],
}
# They read nothing but this repository, W&B, or write what they have measured or made.
ELSEWHERE = {
    "benchmark_attention", "benchmark_attention_layers", "benchmark_presets", "build_dashboard", "check_random_overrides",
    "prepare_demo_corpus",
    "write_preset_table", "write_readme_tables",
}  # fmt: skip


def places(folder: Path) -> dict[str, Path]:
    """What a user may type by mistake, by a name for it."""
    (folder / "empty").mkdir()
    (folder / "a file.txt").write_text("Not what was asked for.\n", encoding="utf-8")
    begun = folder / "begun"
    (begun / "checkpoints").mkdir(parents=True)
    (begun / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    (begun / "metrics.csv").write_text("epoch,step,train/loss\n", encoding="utf-8")
    return {
        "missing": folder / "none", "file": folder / "a file.txt", "empty": folder / "empty", "no results": begun
    }  # fmt: skip


def run(script: str, typed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = SCRIPTS / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(file), *typed])
    monkeypatch.syspath_prepend(str(SCRIPTS))
    runpy.run_path(str(file), run_name="__main__")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", ["missing", "file", "empty", "no results"])
@pytest.mark.parametrize("script", sorted(TYPED))
def test_a_place_that_holds_nothing_is_answered_in_one_sentence_with_exit_code_2(
    script: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, new = str(places(tmp_path)[kind]), str(tmp_path / "new" / "written")
    typed = [word.replace("PLACE", place).replace("NEW", new) for word in TYPED[script]]
    with pytest.raises(SystemExit, match=r"^2$"):
        run(script, typed, monkeypatch)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1), said
    assert str(tmp_path) in said.err
    assert not (tmp_path / "new").exists() or script == "benchmark_minutes"  # where its runs are kept


def test_every_script_that_is_started_is_asked_or_takes_no_place() -> None:
    started = {
        file.stem
        for file in SCRIPTS.glob("*.py")
        if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
    }
    assert started == TYPED.keys() | ELSEWHERE


def test_a_mistake_is_said_whatever_it_was_raised_from_and_a_bug_keeps_its_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @answering.answering
    def main(error: Exception) -> None:
        raise RuntimeError("around it") from error

    with pytest.raises(SystemExit, match=r"^2$"):
        main(UserError("give another"))
    with pytest.raises(SystemExit, match=r"^2$"):
        main(FileNotFoundError(2, "No such file or directory", "there"))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "give another"
    assert second == "there cannot be read or written (No such file or directory); give another path"
    with pytest.raises(RuntimeError, match="around it"):
        main(KeyError("a bug"))
    with pytest.raises(RuntimeError, match="around it"):
        main(OSError("of no file"))
