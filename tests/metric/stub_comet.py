"""A `comet-score` that needs no model: 0.9 for an output that equals the reference, else 0.1."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = """
import argparse, json, os
parser = argparse.ArgumentParser()
for name in ("-s", "-t", "-r", "--model", "--gpus", "--batch_size", "--to_json"):
    parser.add_argument(name, required=True)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--only_system", action="store_true")
given = parser.parse_args()
if given.model == "broken":
    raise SystemExit("loading...\\nno such model")
if os.environ.keys() & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS"}:
    raise SystemExit("a process of the run")
columns = [open(file, encoding="utf-8").read().splitlines() for file in (given.s, given.t, given.r)]
rows = [{"src": s, "mt": t, "ref": r, "COMET": 0.9 if t == r else 0.1} for s, t, r in zip(*columns, strict=True)]
json.dump({given.t: rows}, open(given.to_json, "w"))
with open(__file__ + ".calls", "a") as calls:
    calls.write(f"{len(rows)}\\n")
"""


def write_stub(folder: Path) -> Path:
    """Write the command, which counts the rows of each call in a file beside it."""
    file = folder / "comet-score"
    file.write_text(f"#!{sys.executable}{SCRIPT}", encoding="utf-8")
    file.chmod(0o755)
    return file
