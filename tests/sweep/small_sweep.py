"""An application whose jobs take no time, swept by train.py's sweepers, and what a sweep leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from child import Child
from configs import CONF, ROOT

from seq2seq_attn.files import read_json

CONFIG = """
defaults: [_self_, override hydra/sweeper: grid]
seed: 1
do: work
x: 0.5
resume: null
hydra: {run: {dir: run}, sweep: {dir: sweep, subdir: "${hydra.job.num}"}}
"""
APP = """
import json, os, pathlib, signal, sys, time
from hydra.core.hydra_config import HydraConfig
from seq2seq_attn.cli.entry import main
from seq2seq_attn.errors import UserError

class OddError(Exception):
    def __init__(self, first, second):  # pickles, but is not made again from its pickle
        super().__init__(first + second)

def task(config):
    try:
        work(config)
    except (SystemExit, KeyboardInterrupt) as stopped:
        time.sleep(0.5)
        folder = pathlib.Path(HydraConfig.get().runtime.output_dir)
        (folder / "saved.txt").write_text(type(stopped).__name__)
        raise

def work(config):
    folder = pathlib.Path(HydraConfig.get().runtime.output_dir)
    with (folder / "begun.txt").open("a") as file:
        file.write("once\\n")
    print("at work on", config.seed)
    if config.do == "refuse":
        raise UserError("this is refused; take another")
    if config.do == "bug":
        raise OddError("a ", "bug")
    if config.do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while pathlib.Path("hold" + folder.name).exists():
        time.sleep(0.05)
    told = {"argv": sys.argv[1:], "spec": repr(sys.modules["__main__"].__spec__), "pid": os.getpid()}
    results = {"test/bleu": 50 - 100 * abs(config.x - 0.3), **told}
    (folder / "metrics.csv").write_text("step,val/bleu\\n1,\\n2,%s\\n3,-99\\n" % results["test/bleu"])
    (folder / "results.json").write_text(json.dumps(results))

if __name__ == "__main__":
    main(task, "app", CONF)
"""


SLURM = {
    "sbatch": """
        last=$(sed -n 's/.*--array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
        export SLURM_ARRAY_JOB_ID=$$ SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1
        export SLURM_NTASKS_PER_NODE=1 SLURM_NNODES=1 SLURM_JOB_NAME=train  # as submitit asks for them
        for i in $(seq 0 "$last"); do
            SLURM_JOB_ID=$(($$ + i)) SLURM_ARRAY_TASK_ID=$i bash "$1" > /dev/null 2>&1 &
        done
        echo Submitted batch job $$
        """,
    "srun": """
        while [[ $1 == --* ]]; do case $1 in --output | --error) shift 2;; *) shift;; esac; done
        exec "$@"
        """,
    "sacct": "printf 'JobID|State|NodeList\\n%s_[0-9]|RUNNING|here\\n' \"${@: -1}\"",
}


def write_slurm(folder: Path) -> None:
    """The commands of Slurm that submitit calls, on this machine alone: each job of an array is a process at once."""
    (folder / "bin").mkdir()
    for name, text in SLURM.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)


def write_app(folder: Path) -> Path:
    """The folder, with an application in it."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "app.yaml").write_text(CONFIG)
    shutil.copytree(CONF / "hydra", folder / "conf" / "hydra")
    (folder / "app.py").write_text(APP.replace("CONF", repr(str(folder / "conf"))))
    return folder


def start(folder: Path, *overrides: str) -> Child:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),  # for what launchers start
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "COLUMNS": "200",
    }
    pickles = any(override.startswith("hydra/launcher") for override in overrides)
    return Child(folder / "app.py", ["-m", *overrides], folder, environment, own_python=pickles)


def swept(folder: Path, *overrides: str) -> tuple[int, list[str], list[str]]:
    """Exit code, and the lines of both streams."""
    done = start(folder, *overrides).wait()
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def told(folder: Path, job: int, file: str = "job.json") -> dict[str, Any]:
    return json.loads((folder / "sweep" / str(job) / file).read_text("utf-8"))


def wait_until(true: Callable[[], bool]) -> None:
    latest = time.monotonic() + 100
    while not true():
        assert time.monotonic() < latest
        time.sleep(0.02)


def is_at_work(folder: Path, job: int) -> bool:
    at = folder / "sweep" / str(job)
    begun_file = at / "begun.txt"
    status = read_json(at / "job.json").get("status")
    return begun_file.exists() and bool(begun_file.read_text()) and status == "running"


def start_until(folder: Path, jobs: Sequence[int], *overrides: str) -> Child:
    """A sweep whose jobs are at work until their files hold0, hold1 ... are removed; others end."""
    for job in jobs:
        (folder / f"hold{job}").touch()
    child = start(folder, *overrides)
    wait_until(lambda: all(is_at_work(folder, job) for job in jobs))
    return child


def kill_in_job(folder: Path, job: int, *overrides: str) -> None:
    """The command and all of its processes, once the job is at work; others go on until then."""
    child = start_until(folder, [job], *overrides)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    (folder / f"hold{job}").unlink()


def begun(folder: Path) -> list[int]:
    """How often each job was."""
    files = sorted(folder.glob("sweep/*/begun.txt"), key=lambda file: int(file.parent.name))
    return [len(file.read_text().split()) for file in files]
