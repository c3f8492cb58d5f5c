"""Sweeps of whole runs: the same digits under every launcher, after a kill, and on every rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from configs import ROOT
from small_run import CALLBACKS, assert_same_run, results, rows

from seq2seq_attn.files import read_json

pytestmark = pytest.mark.slow
TINY = [
    "trainer=cpu", "num_threads=1", "tokenizer.vocab_size=300", "model.embedding_dim=16", "model.encoder.dim=16",
    "model.decoder.dim=16", "batch_tokens=512", "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=5",
    "trainer.val_check_interval=20", "trainer.limit_val_batches=3", "trainer.limit_test_batches=3",
    "search.limits.max_length=9", "callback.autosave.every_steps=7", CALLBACKS,
]  # fmt: skip
SIX = ["attention=bahdanau,sparse,synthesizer_random", "seed=1,2", "trainer.max_steps=60", "resume=auto"]
LAUNCHERS = {
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit_local": ["hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=3"],
}


class TellConfig(pl.Callback):
    """Each rank's configuration, as it was resolved there."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        text = json.dumps(pl_module.config, sort_keys=True)
        (self.folder / f"rank{trainer.global_rank}.json").write_text(text, "utf-8")


TELL = "+callback.tell={_target_:sweep.test_sweep.TellConfig,folder:'${paths.run_dir}'}"


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """In a session of its own."""
    return subprocess.Popen(
        [sys.executable, "train.py", "-m", *TINY, f"hydra.sweep.dir={folder}", *overrides],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"COLUMNS": "160", "PYTHONPATH": str(ROOT / "tests")},
    )


def swept(folder: Path, *overrides: str) -> list[str]:
    """The lines that it said."""
    process = start(folder, *overrides)
    out, error = process.communicate(timeout=3000)
    assert process.returncode == 0, error
    return out.splitlines()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In one process, one job after another."""
    folder = tmp_path_factory.mktemp("basic")
    swept(folder, *SIX)
    return folder


@pytest.mark.parametrize("launcher", list(LAUNCHERS))
def test_a_sweep_gives_the_same_digits_under_every_launcher(launcher: str, unbroken: Path, tmp_path: Path) -> None:
    swept(tmp_path, *SIX, *LAUNCHERS[launcher])
    assert len({json.dumps(rows(unbroken / str(job))) for job in range(6)}) == 6
    for job in range(6):
        assert results(unbroken / str(job))["steps"] == 60
        assert_same_run(unbroken / str(job), tmp_path / str(job))


def test_a_sweep_that_was_killed_within_a_job_runs_only_what_is_missing_and_ends_the_same(
    unbroken: Path, tmp_path: Path
) -> None:
    process, latest = start(tmp_path, *SIX), time.monotonic() + 1500
    saved = tmp_path / "3" / "checkpoints" / "last.ckpt"
    while not saved.exists():
        assert time.monotonic() < latest
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert read_json(tmp_path / "3" / "job.json")["status"] == "running"
    said = swept(tmp_path, *SIX)
    assert [line for line in said if "skipped" in line] == [f"job {job}: complete, skipped" for job in range(3)]
    assert sum(line.startswith("The run ") for line in said) == 3
    assert f"The run resumes in {tmp_path / '3'}" in said
    for job in range(6):
        assert_same_run(unbroken / str(job), tmp_path / str(job))


def ranks_of(folder: Path, jobs: range) -> list[Any]:
    """What each job's ranks were told; both the same."""
    found = []
    for job in jobs:
        first, second = ((folder / str(job) / f"rank{rank}.json").read_text("utf-8") for rank in range(2))
        assert first == second
        assert len(list((folder / str(job)).glob("rank*.json"))) == 2
        found.append(json.loads(first))
    return found


@pytest.mark.parametrize("launcher", [[], LAUNCHERS["joblib"], LAUNCHERS["submitit_local"]], ids=" ".join)
def test_ranks_of_a_job_have_the_same_configuration_and_each_job_its_own_folder(
    launcher: list[str], tmp_path: Path
) -> None:
    swept(tmp_path, "trainer=ddp_cpu", "seed=1,2", "trainer.max_steps=3", TELL, *launcher)
    configs = ranks_of(tmp_path, range(2))
    assert [config["seed"] for config in configs] == [1, 2]
    assert [config["paths"]["run_dir"] for config in configs] == [str(tmp_path / job) for job in ("0", "1")]


def test_ranks_of_a_trial_have_the_same_drawn_configuration(tmp_path: Path) -> None:
    swept(tmp_path, "sweep=optuna", "hydra.sweeper.n_trials=3", "trainer=ddp_cpu", "trainer.max_steps=3", TELL)
    configs = ranks_of(tmp_path, range(3))
    dropouts = [config["model"]["encoder"]["dropout"] for config in configs]
    assert len(set(dropouts)) == 3
    assert dropouts == [config["model"]["decoder"]["dropout"] for config in configs]


def test_ten_trials_find_a_better_dropout_than_the_worst_and_survive_a_kill(tmp_path: Path) -> None:
    """By the loss after 60 updates of the demo corpus."""
    study = [
        "sweep=optuna",
        "optimized_metric=val/loss",
        "resume=auto",
        "hydra.sweeper.n_trials=10",
        "model.encoder.dropout=interval(0.0,0.9)",
        "optimizer.lr=0.01",
        "model.dropout=${model.encoder.dropout}",
        "trainer.max_steps=60",
    ]
    process, latest = start(tmp_path, *study), time.monotonic() + 1500
    while not (tmp_path / "4" / "metrics.csv").exists():
        assert time.monotonic() < latest
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    said = swept(tmp_path, *study)
    assert [line for line in said if "skipped" in line] == [f"job {job}: complete, skipped" for job in range(4)]
    found = json.loads((tmp_path / "best.json").read_text("utf-8"))
    assert found["complete"] == 10
    losses = [min(float(row["val/loss"]) for row in rows(tmp_path / str(job)) if row["val/loss"]) for job in range(10)]
    assert found["val/loss"] == min(losses) < max(losses) - 0.1
    assert found["params"]["model.encoder.dropout"] < 0.9
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [str(job) for job in range(10)]
