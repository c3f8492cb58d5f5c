"""W&B without a key, without an answer, or lost on the way: seconds are lost, and never a run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from forked import ended, forked
from logger.test_wandb_resume import logger_of
from logger.test_wandb_run import files, read, values

from seq2seq_attn.logger.wandb_logger import WandbRun, end_process

LOST_SECONDS = 25.0  # W&B alone waits for 100; its service takes ten to start on a busy machine
KEY = "0" * 40


class Silent(BaseHTTPRequestHandler):
    """There is a page at the address, but questions are never answered."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        time.sleep(30)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def silent() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.socket.close()


@pytest.fixture
def deaf() -> Iterator[str]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def choose(address: str) -> None:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", address)

    return choose


@pytest.fixture(autouse=True)
def as_at_first() -> Iterator[None]:
    """W&B reads the environment when it is first used."""
    end_process()
    yield
    end_process()


def online(folder: Path) -> WandbRun:
    return WandbRun(save_dir=str(folder), project="any", name="any", group=None, tags=[], offline=False, resume=None)


def assert_is_kept_offline(folder: Path, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    """A logger is made and logs once, within the seconds that may be lost; the file is there."""
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        online(folder).log_metrics({"train/loss": 2.0}, step=3)
    lost = time.monotonic() - started
    end_process()
    (file,) = files(folder)
    assert values(read(file).history, "train/loss") == {3: 2.0}
    assert lost < LOST_SECONDS
    (said,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("W&B: ")]
    assert reason in said
    assert said.endswith(f"; this run is kept offline in {folder}/wandb, send it later with `wandb sync`")


def test_without_a_key_a_run_is_kept_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    assert_is_kept_offline(tmp_path / "run", caplog, "no key is set (WANDB_API_KEY, or `wandb login`)")


@pytest.mark.slow  # it is waited for as for a server that says nothing
def test_a_refused_connection_is_said_and_the_run_kept_offline(
    tmp_path: Path, with_key: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    with_key("http://127.0.0.1:9")
    assert_is_kept_offline(tmp_path, caplog, "W&B: ")


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for(
    tmp_path: Path, with_key: Callable[[str], None], caplog: pytest.LogCaptureFixture, deaf: str
) -> None:
    with_key(deaf)
    assert_is_kept_offline(tmp_path, caplog, "127.0.0.1:")


@pytest.mark.slow  # it is waited for as for one that says nothing
def test_a_server_that_answers_but_starts_no_run_is_not_waited_for(
    tmp_path: Path, with_key: Callable[[str], None], caplog: pytest.LogCaptureFixture, silent: str
) -> None:
    with_key(silent)
    assert_is_kept_offline(tmp_path, caplog, "W&B: ")


def test_a_choice_of_the_environment_is_not_questioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    online(tmp_path).log_metrics({"train/loss": 2.0}, step=3)
    end_process()
    assert len(files(tmp_path)) == 1
    assert [record for record in caplog.records if record.getMessage().startswith("W&B: ")] == []


def test_an_offline_run_leaves_the_next_one_its_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    logger_of(tmp_path).log_metrics({"train/loss": 2.0}, step=3)
    end_process()
    assert "WANDB_MODE" not in os.environ


def test_training_goes_on_when_wandbs_process_dies_and_the_next_run_has_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert ended(forked(lambda: die_and_go_on(tmp_path, caplog))) == 0
    (file,) = files(tmp_path / "second")
    assert values(read(file).history, "train/loss") == {0: 2.0}


def die_and_go_on(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logger_of(folder / "first")
    logger.log_metrics({"train/loss": 1.0}, step=0)
    children = subprocess.check_output(["ps", "-o", "pid=", "-o", "comm=", "--ppid", str(os.getpid())], text=True)
    (core,) = [int(line.split()[0]) for line in children.splitlines() if "wandb-core" in line]
    os.kill(core, signal.SIGKILL)
    for step in range(1, 40):
        logger.log_metrics({"train/loss": 1.0}, step=step)
        logger.log_table("any", columns=["a"], data=[["b"]], step=step)
    logger.finish()
    second = logger_of(folder / "second")
    second.log_metrics({"train/loss": 2.0}, step=0)
    second.finish()
    end_process()  # as at the exit of a process, which this child leaves at once
    assert caplog.text.count("W&B: nothing more can be logged") == 1
