"""Ranks end together: an error of all is printed by the first, and a rank that was killed is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import ROOT
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.strategies.launchers import subprocess_script
from pytorch_lightning.strategies.launchers import subprocess_script as launchers
from small_run import SMALL

from seq2seq_attn.distributed import ranks
from seq2seq_attn.distributed.ranks import ending_together
from seq2seq_attn.errors import UserError


@pytest.mark.slow
def test_a_command_on_two_ranks_says_each_warning_and_its_mistake_once(pairs: list[str], tmp_path: Path) -> None:
    options = [option for option in SMALL if not option.startswith(("callback=", "trainer="))]
    trained_on = next(pair.partition("=")[2] for pair in pairs if pair.startswith("data.train="))
    options += [*(pair for pair in pairs if not pair.startswith("data.val=")), f"data.val={trained_on}"]
    options += [
        "trainer=ddp_cpu",
        "callback=[seeding,skip_nonfinite,checkpoint,autosave]",
        "callback.skip_nonfinite.limit=3",
    ]
    options += ["+callback.faulty={_target_:callback.faulty.Faulty,fault:forward,first:2,number:99}"]
    done = subprocess.run(
        [sys.executable, "train.py", *options, f"hydra.run.dir={tmp_path}"],
        cwd=ROOT,
        text=True,
        timeout=600,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"COLUMNS": "120", "PYTHONPATH": str(ROOT / "tests")},
    )
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout
    once = ["of val are also in train, so its score is too optimistic", "5 steps in a row, up to step 6, were skipped"]
    once += [f"step {number} is skipped: its loss or gradient is not finite" for number in range(2, 7)]
    assert [done.stdout.count(sentence) for sentence in once] == [1] * len(once), done.stdout


def trainer(*started: subprocess.Popen[bytes], rank: int = 0) -> Any:
    launcher = SimpleNamespace(procs=list(started))
    return SimpleNamespace(strategy=SimpleNamespace(launcher=launcher), global_rank=rank, num_nodes=1)


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def ended(code: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sh", "-c", code])
    process.wait()
    return process


@pytest.mark.parametrize("error", [UserError("too hot"), KeyError("a bug")])
def test_a_first_rank_raises_at_once_and_others_wait_for_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LISTEN_SECONDS", 0.4)
    for rank, least, most in ((0, 0.0, 0.4), (1, 0.4, 9.0)):
        began = time.monotonic()
        with pytest.raises(type(error)), ending_together(trainer(rank=rank)):
            raise error
        assert least <= time.monotonic() - began < most


@pytest.mark.parametrize("error", [UserError("too hot"), KeyError("a bug"), SystemExit(129), KeyboardInterrupt()])
def test_a_first_rank_that_leaves_with_an_error_ends_those_that_lightning_has_started(error: BaseException) -> None:
    """Lightning passes a signal on once ranks train, and they may still be starting."""
    child = sleeping()
    running = trainer(child)
    with pytest.raises(type(error)), ending_together(running):
        raise error
    assert child.returncode == -signal.SIGTERM
    assert running.strategy.launcher.procs == []


def test_a_first_rank_that_is_done_waits_for_others_and_kills_those_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen(["sleep", "0.1"])
    with ending_together(trainer(child)):
        pass
    assert child.returncode == 0
    monkeypatch.setattr(ranks, "GRACE_SECONDS", 0.1)
    child = sleeping()
    with ending_together(trainer(child)):
        pass
    assert child.wait() == -signal.SIGKILL


def test_a_rank_that_ended_is_named_where_it_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "POLL_SECONDS", 0.05)
    for code, how in (("kill -9 $$", "was killed by SIGKILL"), ("exit 7", "ended with exit code 7")):
        child = ended(code)
        sentence = rf"^rank 2 \(process {child.pid}\) {how}; the other ranks end too, continue with resume=auto$"
        with pytest.raises(UserError, match=sentence), ending_together(trainer(sleeping(), child)):
            raise RuntimeError("connection closed by peer")
        with pytest.raises(UserError, match=r"^too hot$"), ending_together(trainer(child)):
            raise UserError("too hot")
    with pytest.raises(RuntimeError, match="a bug"), ending_together(trainer(ended("exit 0"), sleeping())):
        raise RuntimeError("a bug")


def test_a_lost_connection_to_another_node_is_a_sentence() -> None:
    of_nodes, alone = trainer(), trainer()
    of_nodes.num_nodes = 2
    for error in (
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer"),
        torch.distributed.DistBackendError("NCCL error"),
    ):
        with pytest.raises(UserError, match=r"^another node has ended \(.*\); start all"), ending_together(of_nodes):
            raise error
        with pytest.raises(RuntimeError, match=r"gloo|NCCL"), ending_together(alone):
            raise error
    with pytest.raises(RuntimeError, match="a bug"), ending_together(of_nodes):
        raise RuntimeError("a bug")


def test_an_interrupt_keeps_its_exit_code() -> None:
    """Lightning turns it into `sys.exit(1)`."""
    left = SystemExit(1)
    left.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), ending_together(trainer()):
        raise left


def test_another_rank_that_leaves_upon_a_signal_hears_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = []
    monkeypatch.setattr(signal, "signal", lambda signum, handler: ignored.append((signum, handler)))
    with pytest.raises(SystemExit), ending_together(trainer(rank=1)):
        raise SystemExit(143)
    assert (signal.SIGTERM, signal.SIG_IGN) in ignored


def test_a_rank_whose_first_rank_was_gone_before_it_came_to_watch_it_ends() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    code = "import time; from seq2seq_attn.distributed.ranks import watch_parent; watch_parent(); time.sleep(300)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=200,
        env=os.environ | {"LOCAL_RANK": "1", ranks.RANK_0: str(gone.pid)},
    )
    assert done.returncode == 1
    assert done.stderr == f"rank 0 (process {gone.pid}) is gone; rank 1 ends too, continue with resume=auto\n"


def test_a_rank_of_a_process_that_was_a_first_rank_before_watches_its_own_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched: list[tuple[str, int, str]] = []
    running = threading.enumerate()  # with those that earlier tests have left
    monkeypatch.setattr(ranks, "end_after", lambda *who: watched.append(who))
    monkeypatch.setenv(ranks.RANK_0, "1")  # and back to what it was
    monkeypatch.setenv("LOCAL_RANK", "0")
    ranks.watch_parent()
    monkeypatch.setenv("LOCAL_RANK", "2")
    ranks.watch_parent()
    for thread in threading.enumerate():
        if thread not in running:
            thread.join(10)
    assert watched == [("rank 0", os.getppid(), "2")]


def test_a_first_rank_leaves_its_number_to_those_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ranks.RANK_0, "1")  # of another run in whose process this one was started
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    ranks.watch_parent()
    assert os.environ[ranks.RANK_0] == str(os.getpid())


def test_lightning_2_6_has_the_list_the_observer_and_the_log_that_are_used_here() -> None:
    assert launchers._SubprocessScriptLauncher(LightningEnvironment(), 2, 1).procs == []
    assert subprocess_script._ChildProcessObserver(os.getpid(), [])._run()  # it has nothing left to do
    assert subprocess_script._logger.name == "lightning_fabric.strategies.launchers.subprocess_script"
