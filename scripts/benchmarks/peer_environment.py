"""Environments of the programs that `training.py` compares with ours, made once."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = {  # some ask for other versions of torch, and for much that no training needs: then --no-deps
    "joeynmt": (
        ["sentencepiece==0.2.0", "importlib_metadata", "subword-nmt", "plotly", "pandas"],
        ["--no-deps", "joeynmt==2.3.0"],
    ),
    "hf": (["transformers==4.57.6"],),
    "opennmt": (["configargparse", "pyonmttok"], ["--no-deps", "OpenNMT-py==3.5.1"]),
    "eole": (
        ["configargparse", "pyonmttok", "safetensors", "tokenizers", "huggingface_hub", "aiohttp", "six"],
        ["--no-deps", "eole==0.6.0"],
    ),
}  # fmt: skip


def made_environment(name: str, folder: Path) -> Path:
    """The Python of the peer's environment, made if it is not there.

    What is installed beside the Python that runs this, it sees too, behind its own: all train with the same torch.
    """
    python = folder / name / "bin" / "python"
    done = folder / name / "made"
    if not done.exists():
        print(f"making an environment for {name} in {folder / name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
        (own,) = (folder / name).glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({beside!r})\n" for beside in site.getsitepackages()]
        (own / "beside.pth").write_text("".join(lines))
        for requirements in REQUIREMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        done.touch()
    return python
