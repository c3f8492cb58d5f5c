"""Every script answers a path that holds nothing for it with one sentence and exit code 2."""

from __future__ import annotations

import errno
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from configs import ROOT
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from seq2seq_attn.cli import command
from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.decoder.decoder import Decoder
from seq2seq_attn.errors import UserError, reports_user_errors, sentence_of
from seq2seq_attn.files import replacing

# What is typed behind each script; PLACE is what is not there, or nothing of its kind, and NEW a file to write.
TYPED = {
    "average": ["PLACE", "--last", "2", "--output", "NEW.ckpt"],
    "scripts.benchmarks.cost_curves": ["--draw", "--output", "PLACE"],
    "scripts.benchmarks.decoding": ["PLACE", "--output", "NEW"],
    "scripts.benchmarks.gpu": ["--draw", "--output", "PLACE"],
    "scripts.benchmarks.homes": ["run", "--data", "PLACE", "--runs", "NEW"],
    "scripts.benchmarks.documents": ["page", "--runs", "NEW", "--page", "PLACE"],
    "scripts.benchmarks.minutes": ["--data", "PLACE", "--runs", "NEW", "--environments", "NEW", "--output", "NEW"],
    "scripts.benchmarks.training": ["--data", "PLACE", "--output", "NEW"],
    "scripts.checks.import_layers": ["PLACE"],
    "scripts.checks.tokenization": ["--path", "PLACE"],
    "compare lengths": ["PLACE"],
    "compare runs": ["PLACE", "--output", "NEW.html"],
    "compare translations": ["PLACE", "PLACE"],
    "scripts.benchmarks.decode_with_joeynmt": ["PLACE", "1"],
    "draw attention": ["PLACE", "A sentence.", "NEW"],
    "draw curves": ["PLACE", "--output", "NEW.png"],
    "scripts.benchmarks.draw_decoding": ["PLACE"],
    "scripts.benchmarks.draw_minutes": ["PLACE"],
    "scripts.benchmarks.draw_training": ["PLACE"],
    "scripts.benchmarks.draw_maps": ["PLACE", "--sentences", "A sentence.", "--output", "NEW.png"],
    "scripts.benchmarks.pretraining": ["run", "--data", "PLACE", "--runs", "NEW"],
    "scripts.benchmarks.synthetic_pairs": ["run", "--data", "PLACE", "--runs", "NEW"],
    "scripts.benchmarks.seeds": ["page", "--runs", "NEW", "--pages", "PLACE"],
    "draw weights": ["PLACE", "--sentence", "A sentence.", "--output", "NEW"],
    "export ctranslate2": ["PLACE", "NEW"],
    "heads": ["PLACE", "pairs.tsv", "--output", "NEW.html"],
    "rerank": ["PLACE", "PLACE/source.txt", "NEW", "--model", "PLACE", "--weights", "1"],
    "export hub": ["PLACE", "NEW"],
    "export safetensors": ["PLACE", "NEW"],
    "scripts.benchmarks.learn_with_joeynmt": ["PLACE", "1"],
    "scripts.benchmarks.learn_with_opennmt": ["PLACE", "1"],
    "scripts.benchmarks.alignment": ["--data", "PLACE", "--output", "NEW"],
    "scripts.benchmarks.aligning": ["run", "--bitext", "PLACE", "--runs", "NEW"],
    "examples.classify.train_classifier": ["--path", "PLACE"],
    "scripts.benchmarks.train_plainly": ["PLACE", "chunked"],
    "scripts.benchmarks.train_with_eole": ["PLACE"],
    "scripts.benchmarks.train_with_hf": ["PLACE"],
    "scripts.benchmarks.train_with_joeynmt": ["PLACE"],
    "scripts.benchmarks.train_with_opennmt": ["PLACE"],
    "scripts.benchmarks.write_benchmark_page": ["--folder", "PLACE"],
}
# They read nothing but this repository, W&B, or write what they have measured or made.
ELSEWHERE = {
    "scripts.benchmarks.attention", "scripts.benchmarks.attention_layers", "scripts.benchmarks.presets", "dashboard",
    "scripts.benchmarks.fine_tuning", "scripts.benchmarks.kernel_attention", "scripts.benchmarks.large_corpus",
    "scripts.checks.random_overrides", "scripts.demo_corpus.__main__", "scripts.benchmarks.write_preset_table",
    "scripts.checks.architecture_table", "seq2seq_attn.__main__", "train", "translate", "evaluate", "explore",
    "prepare", "seq2seq_attn.cli.train", "seq2seq_attn.cli.translate", "seq2seq_attn.cli.evaluate",
    "seq2seq_attn.cli.explore", "align", "serve", "scripts.demo_corpus.tasks",
    "examples.classify_digits.classify_digits", "scripts.docs.__main__",
}  # fmt: skip


def positions(folder: Path) -> dict[str, Path]:
    """What a user may type by mistake, by a name for it."""
    (folder / "empty").mkdir()
    (folder / "a file.txt").write_text("Not what was asked for.\n", encoding="utf-8")
    begun = folder / "begun"
    (begun / "checkpoints").mkdir(parents=True)
    (begun / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    (begun / "metrics.csv").write_text("epoch,step,train/loss\n", encoding="utf-8")
    return {"missing": folder / "none", "file": folder / "a file.txt", "empty": folder / "empty", "no results": begun}


def run(script: str, typed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if script in SUBCOMMANDS:
        monkeypatch.setattr(sys, "argv", ["seq2seq-attn", *script.split(), *typed])
        command.main()
    else:
        monkeypatch.setattr(sys, "argv", [script, *typed])
        runpy.run_module(script, run_name="__main__")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", ["missing", "file", "empty", "no results"])
@pytest.mark.parametrize("script", sorted(TYPED))
def test_a_position_that_holds_nothing_is_answered_in_one_sentence_with_exit_code_2(
    script: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    position, new = str(positions(tmp_path)[kind]), str(tmp_path / "new" / "written")
    typed = [word.replace("PLACE", position).replace("NEW", new) for word in TYPED[script]]
    with pytest.raises(SystemExit, match=r"^2$"):
        run(script, typed, monkeypatch)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1), said
    assert str(tmp_path) in said.err
    assert not (tmp_path / "new").exists() or script == "scripts.benchmarks.minutes"  # where its runs are kept


def test_every_script_that_is_started_is_asked_or_takes_no_position() -> None:
    files = [file for folder in ("scripts", "examples", "seq2seq_attn") for file in (ROOT / folder).rglob("*.py")]
    started = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if '__name__ == "__main__"' in file.read_text(encoding="utf-8") or file.stem == "__main__"
    }
    started |= SUBCOMMANDS.keys()
    assert started == TYPED.keys() | ELSEWHERE


def test_a_path_without_permission_is_one_sentence() -> None:
    error = PermissionError(13, "Permission denied", "runs/theirs/config.yaml")
    said = "runs/theirs/config.yaml cannot be used (Permission denied); change its permissions, or give another path"
    assert sentence_of(error) == said


def test_a_mistake_is_said_whatever_it_was_raised_from_and_a_bug_keeps_its_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @reports_user_errors
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


def test_an_interrupted_command_ends_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @reports_user_errors
    def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match=r"^130$"):
        main()
    assert capsys.readouterr() == ("", "")


LOCAL = "seq2seq_attn.attention.pattern.local.LocalPattern"


def test_a_class_that_lacks_an_option_of_its_file_is_named() -> None:
    with pytest.raises(InstantiationException) as raised:
        instantiate({"_target_": LOCAL, "length_ratio": 1.0})
    sentence = "LocalPattern is built without 'k', which it needs; give it in the YAML file that chooses LocalPattern"
    assert sentence_of(raised.value) == sentence
    with pytest.raises(InstantiationException) as raised:
        instantiate({"_target_": LOCAL, "k": [], "length_ratio": 1.0})
    assert sentence_of(raised.value) is None  # a bug


class NoForward(Decoder):
    pass


def test_a_class_that_lacks_a_method_is_named() -> None:
    with pytest.raises(InstantiationException) as raised:
        instantiate({"_target_": f"{__name__}.NoForward"})
    assert str(sentence_of(raised.value)).startswith("NoForward defines no ")
    assert str(sentence_of(raised.value)).endswith(", which such a part needs; add it to the class")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_file_for_which_the_disk_has_no_room_is_named_and_stays_as_it_was(number: int, tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    file.write_text("before")

    def written() -> None:
        with replacing(file) as stream:
            stream.write(b"half of it")
            raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        written()
    said = f"{file} cannot be written ({os.strerror(number)}); make room or make it writable, or give another path"
    assert str(sentence_of(caught.value)).startswith(said)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("evaluation.json", "before")]
