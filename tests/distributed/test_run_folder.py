"""However a run is started, it has one folder, whole."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import CONF, ROOT
from distributed.ranks import on_ranks
from lightning_fabric.plugins.environments import TorchElasticEnvironment
from small_run import listen_to_sigint
from sweep.small_sweep import write_slurm

from seq2seq_attn.distributed import run_folder
from seq2seq_attn.distributed.run_folder import VARIABLE, announce, connect, first_run_dir, launcher, shared_run_dir
from seq2seq_attn.distributed.sweep_job import job_arguments
from seq2seq_attn.errors import UserError

SLURM = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODELIST": "127.0.0.1", "SLURM_NODEID": "0"}
SLURM |= {"SLURM_JOB_NAME": "train", "SLURM_NNODES": "1", "SLURM_JOB_ID": "4321"}


def told(launcher: str) -> tuple[str, int]:
    """The folder that this process takes, and its rank in the group that is made afterwards."""
    rank = os.environ["RANK"]
    if launcher == "slurm":
        os.environ |= SLURM | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
    else:
        os.environ |= {"TORCHELASTIC_RUN_ID": "none"}
    if rank == "0":
        time.sleep(0.2)  # the others are at the meeting position first
    run_dir = first_run_dir(f"/runs/of rank {rank}")
    announce(run_dir)
    torch.distributed.init_process_group("gloo")
    return run_dir, torch.distributed.get_rank()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_processes_started_by_others_take_the_folder_of_the_first(launcher: str, tmp_path: Path) -> None:
    number = 3 if launcher == "torchrun" else 2
    assert on_ranks(number, told, tmp_path, launcher) == [("/runs/of rank 0", rank) for rank in range(number)]


def test_processes_wait_for_a_preparation_of_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}  # port 0: any that is free
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    assert connect(TorchElasticEnvironment()).timeout == timedelta(days=1)


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_processes_that_never_come_are_announced_and_named(
    rank: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": rank, "WORLD_SIZE": "2"}
    for name, value in (alone | {"LOCAL_RANK": rank, "TORCHELASTIC_RUN_ID": "none"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(run_folder, "LONGEST_WAIT", timedelta(seconds=1))
    sentence = rf"^process {rank} of 2 could not connect to the others \(.+\); start all of them again "
    waiting = shared_run_dir("/runs/mine")
    with caplog.at_level("INFO"), pytest.raises(UserError, match=sentence), waiting as run_dir:
        announce(run_dir)
    told = ["Waiting for 1 other process"] if rank == "0" else []
    assert [record.getMessage() for record in caplog.records if record.name == run_folder.__name__] == told


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_waits_for_others_ends_upon_a_signal(signum: signal.Signals, tmp_path: Path) -> None:
    wait = "from seq2seq_attn.process import leave_on_signals; leave_on_signals(); "
    wait += "from seq2seq_attn.distributed.run_folder import announce; print('here', flush=True); announce('mine')"
    environment = os.environ | SLURM | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", wait], cwd=tmp_path, stdout=subprocess.PIPE, env=environment, preexec_fn=listen_to_sigint
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.5)
        process.send_signal(signum)
        assert process.wait(60) == -signum


def ready_late() -> str:
    """The rank, once the group is made, whose patience is shorter than what one process still has to read."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "none"}
    run_dir = first_run_dir("/runs/first")
    if os.environ["RANK"] == "1":
        time.sleep(2)
    announce(run_dir)
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=1))
    return os.environ["RANK"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_the_process_group_is_made_when_the_last_process_is_ready(tmp_path: Path) -> None:
    assert on_ranks(2, ready_late, tmp_path) == ["0", "1"]


def test_one_process_keeps_its_own_folder_and_tells_those_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "of a run before")
    assert first_run_dir("mine") == "mine"
    announce("mine")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert first_run_dir(".") == "mine"


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_run_leaves_nothing_of_its_folder_to_the_next_one_of_its_process(
    rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    for ends in (nullcontext(), pytest.raises(KeyError, match="died")):
        monkeypatch.setenv(VARIABLE, "/runs/first")
        with ends, shared_run_dir("/runs/own") as folder:
            assert folder == ("/runs/own" if rank == "0" else "/runs/first")
            announce(folder)
            assert os.environ[VARIABLE] == folder  # processes that it starts now see it
            if ends.__class__ is not nullcontext:
                raise KeyError("died")
        assert VARIABLE not in os.environ


def test_a_node_started_by_hand_must_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RANK", "1")
    assert first_run_dir("/runs/shared") == "/runs/shared"
    with pytest.raises(UserError, match="give all of them the same one with hydra"):
        first_run_dir(os.getcwd())


def test_tasks_that_srun_counts_otherwise_than_lightning_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"^srun cannot start this run: .*ntasks-per-node"):
        launcher()


def test_a_job_of_a_sweep_has_the_flags_of_the_sweep_and_its_own_overrides() -> None:
    typed = ["--config-dir", "mine", "-m", "seed=1,2", "~logger", "hydra.sweep.dir=there", "--config-path=conf"]
    assert job_arguments(typed, ["seed=2", "~logger"]) == [
        "--config-dir",
        "mine",
        "--config-path=conf",
        "seed=2",
        "~logger",
        "hydra.mode=RUN",
    ]


SMALL = ["tokenizer.vocab_size=500", "model.embedding_dim=32", "model.encoder.dim=32", "model.decoder.dim=32"]
SMALL += ["trainer.enable_progress_bar=false", "num_threads=1", "debug=fast", "trainer=ddp_cpu"]
STARTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "lightning": ([], {}),
    "torchrun": (["-m", "torch.distributed.run", "--nproc-per-node", "2"], {}),
    "slurm": ([], SLURM),
    "one task of slurm": ([], SLURM | {"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1"}),
}


def started(folder: Path, start: str, *overrides: str) -> list[subprocess.Popen[bytes]]:
    arguments, environment = STARTS[start]
    ranks = range(2) if start == "slurm" else range(1)
    return [
        subprocess.Popen(
            [sys.executable, *arguments, str(ROOT / "train.py"), *SMALL, *overrides],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment | ({"SLURM_PROCID": f"{r}", "SLURM_LOCALID": f"{r}"} if environment else {}),
        )
        for r in ranks
    ]


def outcome(processes: list[subprocess.Popen[bytes]]) -> str:
    """What they said on standard output, all together."""
    said = [process.communicate(timeout=1500) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return b"".join(out for out, _ in said).decode()


def check_whole(run: Path) -> dict[str, Any]:
    files = {"config.yaml", "provenance.json", "metrics.csv", "results.json", "train.log", "translations.tsv", ".hydra"}
    assert files <= {path.name for path in run.iterdir()}
    return json.loads((run / "results.json").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("start", list(STARTS))
def test_a_run_of_two_processes_leaves_one_folder_and_speaks_once(start: str, tmp_path: Path) -> None:
    said = outcome(started(tmp_path, start))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (run,) = (tmp_path / "runs" / "debug").iterdir()
    assert check_whole(run)["steps"] == 2
    assert (said.count("Run folder:"), said.count("Data: en")) == (1, 1)


@pytest.mark.slow
def test_each_job_of_a_sweep_on_two_processes_has_its_folder(tmp_path: Path) -> None:
    attention = tmp_path / "more" / "attention"
    attention.mkdir(parents=True)
    (attention / "mine.yaml").write_text((CONF / "attention" / "bahdanau.yaml").read_text())
    mine = (f"hydra.searchpath=[{tmp_path / 'more'}]", "attention=mine")  # a rank composes its configuration, too
    said = outcome(started(tmp_path, "lightning", "seed=1,2", "-m", *mine))
    (sweep,) = (tmp_path / "runs" / "debug").iterdir()
    assert {path.name for path in sweep.iterdir()} == {"0", "1", "multirun.yaml", "run.lock"}
    assert [check_whole(sweep / job)["seed"] for job in ("0", "1")] == [1, 2]
    assert said.count("Run folder:") == 2


@pytest.mark.slow
def test_a_job_of_a_sweep_on_slurm_starts_its_processes_in_its_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slurm(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of this checkout, for what submitit starts
    slurm = ("hydra/launcher=submitit_slurm", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    said = outcome(started(tmp_path, "lightning", "seed=1,2", "-m", *slurm))
    assert "failed" not in said
    for job, seed in (("0", 1), ("1", 2)):
        folder = tmp_path / "sweep" / job
        assert check_whole(folder)["seed"] == seed
        assert json.loads((folder / "provenance.json").read_text("utf-8"))["devices"] == 2
