"""Virtual environments of the programs with which the benchmarks compare ours."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = {  # --no-deps where a package requires another torch, and much that training does not need
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
    """Return the Python of the peer's environment, which is created if it does not exist.

    After its own packages it finds those of the Python that runs this, so that all programs use the same torch.
    """
    python = folder / name / "bin" / "python"
    done = folder / name / "made"
    if not done.exists():
        print(f"creating an environment for {name} in {folder / name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
        (packages,) = (folder / name).glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({beside!r})\n" for beside in site.getsitepackages()]
        (packages / "beside.pth").write_text("".join(lines))
        for requirements in REQUIREMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        done.touch()
    return python
