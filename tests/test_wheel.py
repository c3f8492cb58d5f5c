"""The wheel is whole: far from the checkout it builds every attention, trains on its own corpus and translates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from configs import ROOT, attentions_at_once

CODE = """
import pathlib, torch, seq2seq_attn
from seq2seq_attn.attention import build_attention
print(pathlib.Path(seq2seq_attn.__file__).parent)
for preset in {presets}:
    print(preset, *build_attention(preset, dim=16)(torch.ones(2, 5, 16)).context.shape)
"""


TINY = "debug=fast tokenizer.vocab_size=150 data.val_sentences=30 data.test_sentences=30"


@pytest.mark.slow
def test_an_installed_wheel_needs_no_checkout(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # a copy, or the build would leave its folders here
        shutil.copy(ROOT / name, source)
    for name in ("seq2seq_attn", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "data" / "demo", source / "data" / "demo")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True, timeout=300)
    shutil.rmtree(source)
    assert (installed / "seq2seq_attn" / "alignment" / "tatoeba_alignments.tsv").is_file()
    assert (installed / "seq2seq_attn" / "explorer" / "page" / "main.js").is_file()
    presets = attentions_at_once()
    lines = subprocess.run(
        [sys.executable, "-c", CODE.format(presets=presets)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()
    assert lines == [str(installed / "seq2seq_attn"), *(f"{preset} 2 5 16" for preset in presets)]

    def shell(script: str) -> str:
        """Run a script in a folder of its own, where the command is the one that the wheel installs."""
        path = {"PYTHONPATH": str(installed), "PATH": f"{installed / 'bin'}:{os.environ['PATH']}"}
        words = ["bash", "-euxc", script]
        answered = subprocess.run(
            words, cwd=fresh, env=os.environ | path | {"TINY": TINY}, capture_output=True, text=True, timeout=600
        )
        assert answered.returncode == 0, answered.stdout + answered.stderr
        return answered.stdout

    fresh = tmp_path / "fresh"
    shutil.copytree(ROOT / "examples" / "own_attention", fresh, ignore=shutil.ignore_patterns("__pycache__"))
    lines = (ROOT / "data" / "demo" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (fresh / "pairs.tsv").write_text("".join(lines[:600]), encoding="utf-8")
    (fresh / "other.tsv").write_text("".join(lines[600:1000]), encoding="utf-8")
    printed = shell((ROOT / "tests" / "first_week.sh").read_text(encoding="utf-8"))
    assert "Next: seq2seq-attn translate ckpt_path=runs/first input=FILE\n" in printed
    assert "Next: seq2seq-attn translate ckpt_path=runs/own input=FILE trust=[own_attention]\n" in printed
    assert "runs/own is complete; nothing is left to train" in printed
    for name in (
        "evaluated/first/evaluation.json",
        "evaluated/own/evaluation.json",
        "evaluated/tuned/evaluation.json",
        "page.html",
        "map.png",
        "published",
    ):
        assert (fresh / name).exists(), name
    assert shell("seq2seq-attn train --help").startswith(
        "Train a model from text to text, such as a translator: seq2seq-attn train "
    )
    demo = shell("seq2seq-attn train debug=fast hydra.run.dir=demo && python -m seq2seq_attn --version")
    assert "| seq2seq-attn translate ckpt_path=demo" in demo
