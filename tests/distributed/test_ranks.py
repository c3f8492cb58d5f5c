"""What all ranks of a run have to say is said once, by the first; what one alone has to say, by that one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from configs import ROOT
from distributed.ranks import on_ranks
from forked import ended, forked
from small_run import SMALL

from seq2seq_attn.distributed import ranks
from seq2seq_attn.distributed.ranks import ending_together
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")  # Python 3.12's


def said(mistakes: dict[int, str], of_memory: bool) -> str:
    """What this rank's command would print, or how it leaves."""
    torch.distributed.init_process_group("gloo")
    ranks.LISTEN_SECONDS = 0.4
    rank = torch.distributed.get_rank()
    trainer = SimpleNamespace(strategy=SimpleNamespace(launcher=None), world_size=2, global_rank=rank)
    found = "nothing"
    try:
        with ending_together(trainer):
            if rank in mistakes:
                cause = UserError(mistakes[rank])
                if of_memory:
                    raise RuntimeError("out of memory") from cause
                raise cause
    except SystemExit as left:
        found = f"leaves with {left.code}"
    except UserError as error:
        found = str(error)
    except RuntimeError as error:
        found = str(error.__cause__)
    if rank == 0:
        time.sleep(1.0)  # it keeps what the ranks say to each other
    return found


@pytest.mark.parametrize("of_memory", [False, True])
@pytest.mark.parametrize(
    ("mistakes", "expected"),
    [
        ({0: "too hot", 1: "too hot"}, ["too hot", "leaves with 2"]),
        ({0: "another is too hot", 1: "too hot"}, ["another is too hot", "too hot"]),
        ({1: "too hot"}, ["nothing", "too hot"]),
        ({0: "too hot"}, ["too hot", "nothing"]),
    ],
    ids=["all", "each its own", "one", "the first"],
)
def test_a_mistake_of_all_ranks_is_said_by_the_first_and_that_of_one_by_itself(
    mistakes: dict[int, str], expected: list[str], of_memory: bool, tmp_path: Path
) -> None:
    assert on_ranks(2, said, tmp_path, mistakes, of_memory) == expected


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
    once = ["of val are also in train: its score flatters", "5 steps in a row, up to step 6, were skipped"]
    once += [f"step {number} is skipped: its loss or gradient is not finite" for number in range(2, 7)]
    assert [done.stdout.count(sentence) for sentence in once] == [1] * len(once), done.stdout


def test_a_first_rank_that_is_asked_to_end_asks_those_that_it_has_started() -> None:
    """Lightning passes a signal on once ranks train, and they may still be starting."""
    started = subprocess.Popen(["sleep", "60"])
    launcher = SimpleNamespace(procs=[started])
    trainer = SimpleNamespace(strategy=SimpleNamespace(launcher=launcher), world_size=2, global_rank=0)
    with pytest.raises(SystemExit, match=r"^129$"), ending_together(trainer):
        raise SystemExit(129)
    assert started.returncode == -signal.SIGHUP


def test_a_first_rank_that_waits_for_one_that_was_asked_to_end_leaves_as_asked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "GRACE_SECONDS", 0.1)

    def work() -> None:
        started = subprocess.Popen(["sleep", "60"])
        started.terminate()
        launcher = SimpleNamespace(procs=[started])
        trainer = SimpleNamespace(strategy=SimpleNamespace(launcher=launcher), world_size=2, global_rank=0)
        with ending_together(trainer):
            time.sleep(30)

    assert ended(forked(work)) == 143
    assert "was killed by SIGTERM; the other ranks end too" in capfd.readouterr().err
