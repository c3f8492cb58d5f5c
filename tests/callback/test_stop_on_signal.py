"""A signal saves and leaves, whoever of a run it is sent to; the run that goes on is the run that was never stopped."""

from __future__ import annotations

import ctypes
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked import ended, forked
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from small_run import Told, assert_same_run, begun, of_session, run_here, said, start, told

from seq2seq_attn.callback.stop_on_signal import what_to_continue
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.process import leave

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
TWO_RANKS = ["trainer=ddp_cpu"]
PATIENCE = 600.0  # seconds for a command to get where it is waited for, on a machine that does other things


@pytest.fixture(autouse=True)
def at_a_terminal(quiet: None) -> Iterator[None]:
    """SIGINT is not ignored, as it is in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


STOPS = [
    (signal.SIGINT, "validation", 7, 7),
    (signal.SIGHUP, "backward", 9, 10),
    (signal.SIGTERM, "test", 21, 21),  # leaves at once
]


def test_signals_save_at_the_end_of_a_step_or_within_a_validation_and_the_run_goes_on_exactly(
    pairs: list[str], trained_run: Path, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"
    begun.clear()
    handlers = [signal.getsignal(number) for number in EXIT_CODES]
    for signum, hook, step, saved in STOPS:
        killer = f"+callback.killed={{_target_:small_run.Killed,hook:{hook},step:{step},signum:{signum.value}}}"
        with pytest.raises(SystemExit, match=f"^{EXIT_CODES[signum]}$"):
            run_here(stopped, *pairs, "resume=auto", killer)
        assert [signal.getsignal(number) for number in EXIT_CODES] == handlers
        assert read_checkpoint(stopped / "checkpoints" / "last.ckpt")["global_step"] == saved
        assert not (stopped / "results.json").exists()
    run_here(stopped, *pairs, "resume=auto")
    assert begun == [0, *(saved for *_, saved in STOPS)]
    assert_same_run(stopped, trained_run)


@pytest.mark.slow
def test_the_warning_of_slurm_before_its_time_limit_is_such_a_signal(
    pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4321")
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # the usual one would end the tests
    try:
        killer = f"+callback.killed={{_target_:small_run.Killed,hook:backward,step:9,signum:{signal.SIGUSR1.value}}}"
        with pytest.raises(SystemExit, match=r"^138$"):
            run_here(tmp_path / "run", *pairs, killer)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 10


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    latest = time.monotonic() + PATIENCE
    while not true():
        assert process.poll() is None, said(folder)
        assert time.monotonic() < latest, said(folder)
        time.sleep(0.02)


def wait_for(stage: str, step: int, ranks: int, process: subprocess.Popen[bytes], folder: Path) -> dict[int, int]:
    """Processes by rank, when all are at the stage and past the step."""

    def there() -> list[Told]:
        return [line for line in told(folder) if line.stage == stage and line.step >= step]

    wait_until(lambda: len({line.rank for line in there()}) == ranks, process, folder)
    return {line.rank: line.process for line in there()}


@pytest.fixture(scope="module")
def whole_of(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A run that is never stopped, by its number of ranks."""

    @cache
    def folder(ranks: int) -> Path:
        made = tmp_path_factory.mktemp(f"ranks_{ranks}")
        assert start(made, *pairs, *(TWO_RANKS if ranks == 2 else [])).wait(PATIENCE) == 0, said(made)
        return made

    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "target", "stage", "signum"),
    [
        (1, "process", "train", signal.SIGTERM),
        (1, "process", "validation", signal.SIGTERM),
        (1, "group", "train", signal.SIGTERM),
        (1, "group", "train", signal.SIGINT),
        (1, "group", "validation", signal.SIGTERM),
        (2, "process", "train", signal.SIGTERM),
        (2, "process", "validation", signal.SIGTERM),
        (2, "process", "validation", signal.SIGINT),
        (2, "group", "train", signal.SIGTERM),
        (2, "group", "train", signal.SIGINT),
        (2, "group", "validation", signal.SIGTERM),
        (2, "child", "train", signal.SIGTERM),
        (2, "child", "validation", signal.SIGTERM),
    ],
)
def test_a_command_that_is_sent_a_signal_saves_leaves_in_ten_seconds_and_goes_on_exactly(
    ranks: int,
    target: str,
    stage: str,
    signum: signal.Signals,
    whole_of: Callable[[int], Path],
    pairs: list[str],
    tmp_path: Path,
) -> None:
    options = [*pairs, *(TWO_RANKS if ranks == 2 else [])]
    process = start(tmp_path, *options, seconds=0.2)
    processes = wait_for(stage, 7, ranks, process, tmp_path)
    sent = time.monotonic()
    if target == "group":
        os.killpg(process.pid, signum)
    else:
        os.kill(processes[1] if target == "child" else process.pid, signum)
    assert process.wait(PATIENCE) == EXIT_CODES[signum], said(tmp_path)
    assert time.monotonic() - sent < 10
    assert of_session(process.pid) == []
    assert f"{signum.name}: the run is saved at step" in said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    last = max(line.step for line in told(tmp_path))
    saved = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["global_step"]
    assert saved == (last if stage == "validation" else last + 1)
    assert start(tmp_path, *options).wait(PATIENCE) == 0, said(tmp_path)
    assert_same_run(tmp_path, whole_of(ranks))
    lines = [line[20:] for line in (tmp_path / "train.log").read_text("utf-8").splitlines()]
    (signalled,) = [n for n, line in enumerate(lines) if line.startswith(f"{signum.name}: the run is saved at step")]
    assert signalled < lines.index(f"The run resumes in {tmp_path}")  # appended, not overwritten
    assert re.fullmatch(r"The training ends in epoch (\d+) after step \d+: trainer.max_epochs=\1 is reached", lines[-1])
    assert sum(line.startswith("epoch ") for line in lines) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_workers_too_that_prepare_batches_saves(
    signum: signal.Signals, pairs: list[str], tmp_path: Path
) -> None:
    process = start(tmp_path, *pairs, "num_workers=1", seconds=0.2)
    wait_for("train", 3, 1, process, tmp_path)
    os.killpg(process.pid, signum)
    assert process.wait(PATIENCE) == EXIT_CODES[signum], said(tmp_path)
    assert of_session(process.pid) == []
    assert f"{signum.name}: the run is saved at step" in said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    assert (tmp_path / "checkpoints" / "last.ckpt").exists()


@pytest.mark.slow
def test_a_signal_while_ranks_are_being_started_leaves_no_process_and_no_traceback(
    pairs: list[str], tmp_path: Path
) -> None:
    process = start(tmp_path, *pairs, *TWO_RANKS)
    wait_until(lambda: len(of_session(process.pid)) > 1, process, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143, said(tmp_path)
    latest = time.monotonic() + 60
    while of_session(process.pid):  # one that was started in this moment ends by itself, when it is imported
        assert time.monotonic() < latest, said(tmp_path)
        time.sleep(0.1)
    assert "Traceback" not in said(tmp_path)


@pytest.mark.slow
def test_a_second_sigint_leaves_at_once(pairs: list[str], tmp_path: Path) -> None:
    process = start(tmp_path, *pairs, seconds=20.0)
    wait_for("train", 0, 1, process, tmp_path)
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    assert process.poll() is None
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert time.monotonic() - sent < 5
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_named_by_the_other_which_ends_with_an_error(
    rank: int, pairs: list[str], tmp_path: Path
) -> None:
    adopt_orphans(True)
    try:
        process = start(tmp_path, *pairs, *TWO_RANKS, seconds=0.2)
        processes = wait_for("train", 5, 2, process, tmp_path)
        killed = time.monotonic()
        os.kill(processes[rank], signal.SIGKILL)
        ended = process.wait(PATIENCE)
        code = ended if rank == 1 else os.waitstatus_to_exitcode(os.waitpid(processes[1], 0)[1])
    finally:
        adopt_orphans(False)
    assert code == (2 if rank == 1 else 1)
    assert time.monotonic() - killed < 30
    assert of_session(process.pid) == []
    named = (
        f"rank 1 (process {processes[1]}) was killed by SIGKILL" if rank else f"rank 0 (process {processes[0]}) is gone"
    )
    assert named in said(tmp_path)


def adopt_orphans(yes: bool) -> None:
    """Whether this process is the parent of those below it that have lost theirs: prctl(PR_SET_CHILD_SUBREAPER)."""
    assert ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0) == 0


def test_what_is_printed_on_a_terminal_that_was_closed_fails_no_more(tmp_path: Path) -> None:
    reading, writing = pty.openpty()
    told, tell = os.pipe()

    def work() -> None:
        for descriptor in (1, 2):
            os.dup2(writing, descriptor)
        os.close(writing)
        os.close(reading)
        os.read(told, 1)  # the other process has closed them, too
        with pytest.raises(OSError, match="Input/output error"):
            os.write(1, b"lost")
        with pytest.raises(SystemExit, match=r"^129$"):
            leave(signal.SIGHUP, None)
        for descriptor in (1, 2):
            os.write(descriptor, b"said to nobody")
        (tmp_path / "done").touch()

    child = forked(work)
    os.close(reading)
    os.close(writing)
    os.write(tell, b"closed")
    assert ended(child) == 0
    assert (tmp_path / "done").exists()


def test_a_job_of_a_sweep_goes_on_with_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert what_to_continue() == "it with resume=auto and its hydra.run.dir"
    job = SimpleNamespace(mode=RunMode.MULTIRUN, sweep=SimpleNamespace(dir="runs/mine"))
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: job)
    assert what_to_continue() == "the sweep with resume=auto hydra.sweep.dir=runs/mine"
