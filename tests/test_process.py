"""Freed memory stays with the process: the page faults of a child say so."""

from __future__ import annotations

import io
import logging.config
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from configs import CONF, ROOT

from seq2seq_attn.process import find_own_plugins

CHILD = """
import resource, sys, numpy as np
from seq2seq_attn.process import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "kept" else None)
def step():
    [np.ones(10**6) for _ in range(4)]
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 4 * 8 * 10**6 // 4096  # of one step
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


STARTED = "from seq2seq_attn.process import peak_resident_bytes; print(peak_resident_bytes())"
STARTER = """
import subprocess, sys, numpy as np
held = np.ones(4 * 10**7)
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc, from which the peak is read")
def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    starting = [sys.executable, "-c", STARTER, STARTED]
    done = subprocess.run(starting, capture_output=True, text=True, check=True, cwd=ROOT)
    assert 10**6 < int(done.stdout) < 2 * 10**8  # of 320 MB that the other held


def run(how: str, **variables: str) -> tuple[str, int]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, how], env=own | variables, capture_output=True, text=True, check=True
    )
    said, faults = done.stdout.split()
    return said, int(faults)


@glibc
def test_a_tensor_that_is_freed_and_made_again_costs_no_page_faults() -> None:
    said, faults = run("kept")
    assert said == "True"
    assert faults < PAGES / 10
    assert run("left")[1] > PAGES


@glibc
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_set_malloc_keeps_it(name: str) -> None:
    value = "131072" if name.startswith("MALLOC") else "glibc.malloc.trim_threshold=131072"
    assert run("kept", **{name: value})[0] == "False"


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Restore the handlers of the root logger."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.usefixtures("own_handlers")
def test_lines_are_printed_where_sys_stdout_leads_and_appended_to_train_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = yaml.safe_load((CONF / "hydra" / "job_logging" / "run.yaml").read_text("utf-8"))
    options["handlers"]["file"]["filename"] = log = tmp_path / "train.log"
    for line in ("first", "second"):
        logging.config.dictConfig(options)
        assert log.exists() == (line == "second")  # a start that fails writes none
        logging.getLogger("seq2seq_attn.any").info(line)
    bar = io.StringIO()
    monkeypatch.setattr("sys.stdout", bar)
    logging.getLogger("seq2seq_attn.any").info("above the bar")
    assert capsys.readouterr().out == "first\nsecond\n"
    assert bar.getvalue() == "above the bar\n"
    assert [line[19:] for line in log.read_text("utf-8").splitlines()] == [" first", " second", " above the bar"]


def test_hydra_finds_the_sweepers_of_a_checkout_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable install leaves the folder of plugins off the path, of which Hydra reads the folders."""
    monkeypatch.chdir(tmp_path)
    elsewhere = [folder for folder in sys.path if folder and Path(folder).resolve() != ROOT]
    monkeypatch.setattr(sys, "path", list(elsewhere))
    find_own_plugins()
    find_own_plugins()
    assert sys.path == [*elsewhere, str(ROOT)]
