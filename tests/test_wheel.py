"""The wheel is whole: far from the checkout it builds every attention, trains on its own corpus and translates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from configs import ROOT, options

CODE = """
import pathlib, torch, seq2seq_attn
from seq2seq_attn.attention import build_attention
print(pathlib.Path(seq2seq_attn.__file__).parent)
for preset in {presets}:
    print(preset, *build_attention(preset, dim=16)(torch.ones(2, 5, 16)).context.shape)
"""


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
    presets = options("attention")
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

    def command(*arguments: str, text: str = "") -> str:
        return subprocess.run(
            [sys.executable, "-m", "seq2seq_attn", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout

    trained = command("train", "debug=fast", "hydra.run.dir=run")
    assert "| seq2seq-attn translate ckpt_path=run" in trained
    assert command("translate", "ckpt_path=run", text="one\ntwo\n").count("\n") == 2
    command("evaluate", "ckpt_path=run", "hydra.run.dir=evaluated")
    assert (tmp_path / "evaluated" / "evaluation.json").is_file()
    assert command("train", "--help").startswith("Train")
