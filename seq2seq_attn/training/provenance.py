"""Where figures came from: configuration, versions, commit and data."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from seq2seq_attn.data.corpus import LoadedCorpus

PACKAGES = (
    "torch",
    "pytorch-lightning",
    "torchmetrics",
    "hydra-core",
    "sentencepiece",
    "sacrebleu",
    "sacremoses",
    "numpy",
)


def write_provenance(run_dir: Path, config: dict[str, Any], corpus: LoadedCorpus) -> None:
    """`config.yaml`, resolved, and `provenance.json` in the run folder, before the first update."""
    run_dir.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(config), run_dir / "config.yaml")
    (run_dir / "provenance.json").write_text(
        json.dumps(provenance(corpus), indent=2, ensure_ascii=False) + "\n", "utf-8"
    )


def provenance(corpus: LoadedCorpus) -> dict[str, Any]:
    """What this process runs, and on which data, as plain data."""
    return {
        "command": sys.argv,
        "commit": commit(),
        "data_fingerprint": corpus.fingerprint,
        "data_report": dict(corpus.report.counts),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def commit() -> str | None:
    """The commit of the checkout that this code runs from, marked where it was changed; None outside one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("-changed" if changed.strip() else "")
