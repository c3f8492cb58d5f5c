"""Freed memory stays with the process: the page faults of a child say so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

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
