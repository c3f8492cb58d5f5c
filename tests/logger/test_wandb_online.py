"""What a server has in the end of a run that went on, sent as it ran or by `wandb sync`: each step once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from logger.test_wandb_run import AXIS
from logger.wandb_stub import Stub

from seq2seq_attn.logger.csv_logger import CsvLogger
from seq2seq_attn.logger.wandb_logger import WandbRun, end_process


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """One that has a key for us."""
    end_process()
    with Stub() as stub:
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_BASE_URL", stub.address)
        monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
        threading.Thread(target=stub.serve_forever, args=(0.01,), daemon=True).start()
        yield stub
        end_process()
        stub.shutdown()


def log_steps(folder: Path, steps: range, offline: bool = False) -> str:
    """As a run does that goes on, or begins; gives its id. Its metrics.csv is of all steps so far."""
    logger = WandbRun(
        save_dir=str(folder), project="any", name="any", group=None, tags=[], offline=offline, resume="auto"
    )
    table = CsvLogger(folder)
    logger.log_hyperparams({"any": 1})  # starts the run, as it does before training
    table.keep(2 * steps[0])
    for step in steps:
        for metrics in ({"train/loss": float(step)}, {"val/loss": step + 0.5}):
            for one in (table, logger):
                one.log_metrics(metrics, step)
    logger.finish()
    return str(logger.version)


def steps_at(server: Stub, run: str, name: str) -> list[int]:
    lines = server.history[run]
    numbers = [line["_step"] for line in lines]
    assert numbers == sorted(set(numbers))
    return [line[AXIS] for line in lines if name in line]


def test_nothing_else_is_sent(server: Stub, tmp_path: Path) -> None:
    run = log_steps(tmp_path, range(2))
    end_process()
    kinds = {path.replace(run, "RUN").partition("?")[0] for path in server.asked}
    assert {"/graphql", "/files/any/any/RUN/file_stream"} <= kinds
    sent = {Path(path).name for path in kinds if path.startswith("/sent/")}
    assert sent <= {"config.yaml", "requirements.txt", "wandb-summary.json"}
    assert all(path in ("/", "/graphql") or path.startswith(("/files/any/any/RUN/", "/sent/")) for path in kinds)


def test_a_run_that_goes_on_sends_what_the_server_lacks_and_nothing_twice(server: Stub, tmp_path: Path) -> None:
    run = log_steps(tmp_path, range(5))
    assert steps_at(server, run, "train/loss") == [0, 1, 2, 3, 4]
    del server.history[run][7:]  # the end was lost on its way
    assert log_steps(tmp_path, range(2, 8)) == run
    assert steps_at(server, run, "train/loss") == steps_at(server, run, "val/loss") == list(range(8))
    assert list(server.history) == [run]


def test_scalars_that_were_lost_before_the_checkpoint_come_from_metrics_csv(server: Stub, tmp_path: Path) -> None:
    run = log_steps(tmp_path, range(5))
    del server.history[run][4:]
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("9,9")  # cut off
    log_steps(tmp_path, range(4, 8))
    assert steps_at(server, run, "train/loss") == steps_at(server, run, "val/loss") == list(range(8))


@pytest.mark.slow
def test_parts_that_were_kept_offline_are_joined_by_wandb_sync(server: Stub, tmp_path: Path) -> None:
    runs = {log_steps(tmp_path, steps, offline=True) for steps in (range(5), range(3, 8))}
    parts = sorted(map(str, tmp_path.glob("wandb/offline-run-*")))
    assert len(parts) == 2
    wandb = Path(sys.executable).with_name("wandb")
    done = subprocess.run([wandb, "sync", *parts], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (run,) = runs
    assert steps_at(server, run, "train/loss") == steps_at(server, run, "val/loss") == list(range(8))
